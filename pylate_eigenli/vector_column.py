"""Single vectors as columns of a segment: written, scanned and read back at any precision."""

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

_BITS: dict[str, Bits] = {"int8": 8, "int4": 4, "binary": 1}
_BLOCK_BYTES = 32 << 20


def encode(vectors: Tensor, dtype: VectorDtype) -> dict[str, NDArray[Any]]:
    """Return the columns of vectors (n, D), float32."""
    if dtype not in _BITS:
        return {"vector": vectors.numpy().astype(dtype)}
    codes = Codes.encode(vectors, _BITS[dtype])
    return {"vector": codes.values, "vector_scale": codes.scales}


def _codes(segment: Segment, dtype: VectorDtype, dim: int, rows: Any) -> Codes:
    return Codes(
        segment.column("vector")[rows], segment.column("vector_scale")[rows], _BITS[dtype], dim
    )


def scores(
    segment: Segment,
    rows: slice | NDArray[np.int64],
    dtype: VectorDtype,
    queries: Tensor,
) -> NDArray[np.float32]:
    """Return the inner products of queries (m, D) with the vectors at rows. Shape: (m, rows)."""
    if dtype in _BITS:
        return _codes(segment, dtype, queries.shape[1], rows).scores(queries)
    stored = segment.column("vector")[rows]
    out = np.empty((len(queries), len(stored)), np.float32)
    step = max(1, _BLOCK_BYTES // (4 * queries.shape[1]))
    for begin in range(0, len(stored), step):
        block = torch.tensor(stored[begin : begin + step], dtype=torch.float32)
        out[:, begin : begin + step] = (queries @ block.mT).numpy()
    return out


def decode(columns: Mapping[str, NDArray[Any]], dtype: VectorDtype, dim: int) -> Tensor:
    """Return what :func:`encode` has made columns of, as they keep it. Shape: (n, D), float32."""
    if dtype in _BITS:
        return Codes(columns["vector"], columns["vector_scale"], _BITS[dtype], dim).decode()
    return torch.tensor(columns["vector"], dtype=torch.float32)


def read(segment: Segment, rows: slice | NDArray[np.int64], dtype: VectorDtype, dim: int) -> Tensor:
    """Return the vectors at rows, as far as their precision goes. Shape: (rows, D), float32."""
    names = ("vector", "vector_scale") if dtype in _BITS else ("vector",)
    return decode({name: segment.column(name)[rows] for name in names}, dtype, dim)
