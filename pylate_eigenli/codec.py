"""How bases are kept in a file: as float32, float16 or int8 rows, and back."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .storage import Segment
from .subspace import Subspaces

BasisDtype = Literal["float32", "float16", "int8"]
DTYPES: tuple[BasisDtype, ...] = ("float32", "float16", "int8")

Columns: TypeAlias = dict[str, NDArray[Any]]


def encode(subspaces: Subspaces, dtype: BasisDtype) -> tuple[Columns, Columns]:
    """Return the columns of a batch, those per document and those per direction."""
    bases = subspaces.bases.float().cpu().numpy()
    documents = {"floor": subspaces.floors.float().cpu().numpy()}
    if dtype != "int8":
        return documents, {"basis": bases.astype(dtype)}
    scale = np.abs(bases).max(axis=1, keepdims=True) / 127
    return documents, {
        "basis": np.rint(bases / scale).astype(np.int8),
        "scale": scale[:, 0],
    }


def _float_rows(segment: Segment, rows: slice | NDArray[np.int64]) -> Tensor:
    # A slice stays a view of the mapped file; conversion makes the only copy.
    basis = np.asarray(segment.column("basis")[rows])
    result = torch.tensor(basis, dtype=torch.float32)
    if segment.has("scale"):
        result *= torch.tensor(segment.column("scale")[rows])[:, None]
    return result


def decode_range(segment: Segment, begin: int, end: int) -> Tensor:
    """Return the rows of the documents begin:end, one after the other. Shape: (rows, d), float32."""
    return _float_rows(segment, slice(int(segment.offsets[begin]), int(segment.offsets[end])))


def decode_documents(
    segment: Segment, documents: NDArray[np.int64]
) -> tuple[Tensor, NDArray[np.int64]]:
    """Return the rows of chosen documents, one after the other, and how many each of them has.

    Shapes: (rows, d) float32 and (documents,) int64.
    """
    begin, end = segment.offsets[documents], segment.offsets[documents + 1]
    ranks = end - begin
    # Row numbers of all documents in one go: count up, restarting at each document's first row.
    rows = np.arange(ranks.sum()) + np.repeat(begin - (np.cumsum(ranks) - ranks), ranks)
    return _float_rows(segment, rows), ranks
