"""Columns of single documents as bytes, for stores that know nothing of columns.

The bytes of a document are a safetensors file of its own entries of all columns. Many of them,
fetched, can be read like the segment that they came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from ...storage import DocumentId
from ...storage.ragged import Array, offsets_of


def to_bytes(
    documents: Mapping[str, Array], rows: Mapping[str, Array], offsets: NDArray[np.int64]
) -> list[bytes]:
    """Return the bytes of each document.

    Parameters
    ----------
    documents
        Columns with one entry per document. Shape of each: (n, ...).
    rows
        Columns with a run of rows per document. Shape of each: (offsets[-1], ...).
    offsets
        Document i owns the rows ``offsets[i]:offsets[i + 1]``. Shape: (n + 1,).

    Examples
    --------
    >>> rows = {"token": np.arange(6, dtype=np.float32).reshape(3, 2)}
    >>> one, two = to_bytes({}, rows, np.array([0, 2, 3]))
    >>> fetched = FetchedDocuments.from_bytes(["one", "two"], [one, two], "token")
    >>> fetched.column("token").shape, fetched.offsets.tolist()
    ((3, 2), [0, 2, 3])
    """
    result = []
    for i, (begin, end) in enumerate(pairwise(offsets.tolist())):
        columns = {name: np.ascontiguousarray(x[i : i + 1]) for name, x in documents.items()}
        columns |= {name: np.ascontiguousarray(x[begin:end]) for name, x in rows.items()}
        result.append(save(columns))
    return result


@dataclass(frozen=True, eq=False)
class FetchedDocuments:
    """Documents from bytes, to be read like a :class:`pylate_eigenli.storage.Segment`.

    Attributes
    ----------
    columns
        Arrays by name, of one entry per document or of a run of rows per document.
    offsets
        Document i owns the rows ``offsets[i]:offsets[i + 1]``. Shape: (n + 1,), int64.
    """

    documents_ids: Sequence[DocumentId]
    columns: Mapping[str, Array]
    offsets: NDArray[np.int64]

    @classmethod
    def from_bytes(
        cls, ids: Sequence[DocumentId], data: Sequence[bytes], rows: str
    ) -> FetchedDocuments:
        """Invert :func:`to_bytes` for at least one document; ``rows`` names a column of rows."""
        parts = [load(one) for one in data]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return cls(ids, columns, offsets_of([len(part[rows]) for part in parts]))

    def has(self, name: str) -> bool:
        """Whether there is a column of that name."""
        return name in self.columns

    def column(self, name: str) -> Array:
        """A column: one entry per document, or per row."""
        return self.columns[name]

    def ids(self, rows: NDArray[np.int64]) -> list[DocumentId]:
        """The ids of the documents at ``rows``."""
        return [self.documents_ids[row] for row in rows.tolist()]
