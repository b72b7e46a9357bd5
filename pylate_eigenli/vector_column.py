"""Single vectors as columns of a segment: written, scanned and read back at any precision.

Of a vector that is to be rounded, its part along an *axis* that all documents have much of is kept
aside, as one float: documents differ in how much of it they have, by their length for instance, and
in a code of few bits that difference would drown what tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .codes import Bits, Codes
from .storage import Segment

VectorDtype = Literal["float32", "float16", "int8", "int4", "binary"]
DTYPES: tuple[VectorDtype, ...] = get_args(VectorDtype)

COLUMNS = ("vector", "vector_scale", "vector_along")
_BITS: dict[str, Bits] = {"int8": 8, "int4": 4, "binary": 1}
_BLOCK_BYTES = 32 << 20


def encode(vectors: Tensor, dtype: VectorDtype, axis: Tensor | None) -> dict[str, NDArray[Any]]:
    """Return the columns of vectors (n, D), float32; axis is of length 1. Shape: (D,)."""
    if dtype not in _BITS:
        return {"vector": vectors.numpy().astype(dtype)}
    if axis is None:
        codes = Codes.encode(vectors, _BITS[dtype])
        return {"vector": codes.values, "vector_scale": codes.scales}
    along = vectors @ axis
    codes = Codes.encode(torch.addr(vectors, along, axis, alpha=-1), _BITS[dtype])
    # What rounding has put back along the axis is taken off again: that part is exact.
    left = along.numpy() - codes.scores(axis[None])[0]
    return {"vector": codes.values, "vector_scale": codes.scales, "vector_along": left}


def _codes(segment: Segment, dtype: VectorDtype, dim: int, rows: Any) -> Codes:
    return Codes(
        segment.column("vector")[rows], segment.column("vector_scale")[rows], _BITS[dtype], dim
    )


def scores(
    segment: Segment,
    rows: slice | NDArray[np.int64],
    dtype: VectorDtype,
    queries: Tensor,
    axis: Tensor | None,
) -> NDArray[np.float32]:
    """Return the inner products of queries (m, D) with the vectors at rows. Shape: (m, rows)."""
    if dtype in _BITS:
        products = _codes(segment, dtype, queries.shape[1], rows).scores(queries)
        if axis is not None:
            products += np.outer(queries @ axis, segment.column("vector_along")[rows])
        return products
    stored = segment.column("vector")[rows]
    out = np.empty((len(queries), len(stored)), np.float32)
    step = max(1, _BLOCK_BYTES // (4 * queries.shape[1]))
    for begin in range(0, len(stored), step):
        block = torch.tensor(stored[begin : begin + step], dtype=torch.float32)
        out[:, begin : begin + step] = (queries @ block.mT).numpy()
    return out


def decode(
    columns: Mapping[str, NDArray[Any]], dtype: VectorDtype, dim: int, axis: Tensor | None
) -> Tensor:
    """Return what :func:`encode` has made columns of, as they keep it. Shape: (n, D), float32."""
    if dtype not in _BITS:
        return torch.tensor(columns["vector"], dtype=torch.float32)
    vectors = Codes(columns["vector"], columns["vector_scale"], _BITS[dtype], dim).decode()
    if axis is not None:
        vectors.addr_(torch.tensor(columns["vector_along"]), axis)
    return vectors


def read(
    segment: Segment,
    rows: slice | NDArray[np.int64],
    dtype: VectorDtype,
    dim: int,
    axis: Tensor | None,
) -> Tensor:
    """Return the vectors at rows, as far as their precision goes. Shape: (rows, D), float32."""
    columns = {name: segment.column(name)[rows] for name in COLUMNS if segment.has(name)}
    return decode(columns, dtype, dim, axis)
