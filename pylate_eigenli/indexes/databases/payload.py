"""Columns of single documents as bytes, for databases without columns.

The bytes of a document are a safetensors file with its entries of all columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from safetensors.numpy import load, save

from ...storage import DocumentId
from ...storage.batch import Batch
from ..columns import joined


def to_bytes(documents: Batch) -> list[bytes]:
    """Return the bytes of each document.

    Examples
    --------
    >>> rows = {"token": np.arange(6, dtype=np.float32).reshape(3, 2)}
    >>> documents = Batch(["one", "two"], {}, rows, np.array([0, 2, 3]))
    >>> fetched = from_bytes(["one", "two"], to_bytes(documents))
    >>> fetched.column("token").shape, fetched.offsets.tolist()
    ((3, 2), [0, 2, 3])
    """
    result = []
    for i, (begin, end) in enumerate(pairwise(documents.offsets.tolist())):
        columns = {n: np.ascontiguousarray(x[i : i + 1]) for n, x in documents.documents.items()}
        columns |= {n: np.ascontiguousarray(x[begin:end]) for n, x in documents.rows.items()}
        result.append(save(columns))
    return result


def from_bytes(ids: Sequence[DocumentId], data: Sequence[bytes]) -> Batch:
    """Invert :func:`to_bytes` for at least one document."""
    return joined(ids, [load(one) for one in data])
