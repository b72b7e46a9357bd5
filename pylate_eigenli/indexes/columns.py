"""Single vectors as columns of a segment: written, scanned and read back at any precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..vectors.axis_codes import AxisCodes
from ..vectors.quantization import Bits, Codes
from ..storage import Segment

VectorDtype = Literal["float32", "float16", "int8", "int4", "binary"]
DTYPES: tuple[VectorDtype, ...] = get_args(VectorDtype)

COLUMNS = ("vector", "vector_scale", "vector_along")
_BITS: dict[str, Bits] = {"int8": 8, "int4": 4, "binary": 1}
_BLOCK_BYTES = 32 << 20


def encode(vectors: Tensor, dtype: VectorDtype, axis: Tensor | None) -> dict[str, NDArray[Any]]:
    """Return the columns of vectors (n, D), float32; see :class:`AxisCodes` for the axis."""
    if dtype not in _BITS:
        return {"vector": vectors.numpy().astype(dtype)}
    coded = AxisCodes.encode(vectors, _BITS[dtype], axis)
    columns: dict[str, NDArray[Any]] = {
        "vector": coded.codes.values,
        "vector_scale": coded.codes.scales,
    }
    return columns if coded.along is None else {**columns, "vector_along": coded.along}


def _coded(columns: Mapping[str, NDArray[Any]], dtype: VectorDtype, dim: int) -> AxisCodes:
    codes = Codes(columns["vector"], columns["vector_scale"], _BITS[dtype], dim)
    return AxisCodes(codes, columns.get("vector_along"))


def _columns(segment: Segment, rows: slice | NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    return {name: segment.column(name)[rows] for name in COLUMNS if segment.has(name)}


def scores(
    segment: Segment,
    rows: slice | NDArray[np.int64],
    dtype: VectorDtype,
    queries: Tensor,
    axis: Tensor | None,
) -> NDArray[np.float32]:
    """Return the inner products of queries (m, D) with the vectors at rows. Shape: (m, rows)."""
    columns = _columns(segment, rows)
    if dtype in _BITS:
        return _coded(columns, dtype, queries.shape[1]).scores(queries, axis)
    stored = columns["vector"]
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
    return _coded(columns, dtype, dim).decode(axis)


def read(
    segment: Segment,
    rows: slice | NDArray[np.int64],
    dtype: VectorDtype,
    dim: int,
    axis: Tensor | None,
) -> Tensor:
    """Return the vectors at rows, as far as their precision goes. Shape: (rows, D), float32."""
    return decode(_columns(segment, rows), dtype, dim, axis)
