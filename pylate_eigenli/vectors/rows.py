"""How unit rows, bases or tokens, are kept in a file: as float32, float16 or int8, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UnknownDocumentError
from ..storage import DocumentId, Segment, Snapshot

RowDtype = Literal["float32", "float16", "int8"]
DTYPES: tuple[RowDtype, ...] = get_args(RowDtype)


def encode(name: str, rows: Tensor, dtype: RowDtype) -> dict[str, NDArray[Any]]:
    """Return rows (n, d) as columns: ``name`` and, for int8, the scale of each row beside it."""
    values = rows.float().cpu().numpy()
    if dtype != "int8":
        return {name: values.astype(dtype)}
    scale = np.abs(values).max(axis=1, keepdims=True) / 127
    scale[scale == 0] = 1  # a direction of no weight
    return {name: np.rint(values / scale).astype(np.int8), scale_of(name): scale[:, 0]}


def scale_of(name: str) -> str:
    """Return the name of the column with the scales of another."""
    return f"{name}_scale"


def decode(name: str, columns: Mapping[str, NDArray[Any]]) -> Tensor:
    """Return what :func:`encode` has made columns of, as they keep it. Shape: (n, d), float32."""
    rows = torch.from_numpy(columns[name].astype(np.float32))
    scale = columns.get(scale_of(name))
    return rows if scale is None else rows * torch.from_numpy(scale)[:, None]


def _float_rows(segment: Segment, name: str, rows: slice | NDArray[np.int64]) -> Tensor:
    # A slice stays a view of the mapped file; conversion makes the only copy.
    result = torch.tensor(np.asarray(segment.column(name)[rows]), dtype=torch.float32)
    if segment.has(scale_of(name)):
        result *= torch.tensor(segment.column(scale_of(name))[rows])[:, None]
    return result


def decode_range(segment: Segment, name: str, begin: int, end: int) -> Tensor:
    """Return the rows of the documents begin:end, one after the other. Shape: (rows, d), float32."""
    return _float_rows(segment, name, slice(int(segment.offsets[begin]), int(segment.offsets[end])))


def decode_documents(
    segment: Segment, name: str, documents: NDArray[np.int64]
) -> list[NDArray[np.float32]]:
    """Return the rows of chosen documents. Shape of each: (rows, d), float32."""
    begin, end = segment.offsets[documents], segment.offsets[documents + 1]
    lengths = end - begin
    # Row numbers of all documents in one go: count up, restarting at each document's first row.
    rows = np.arange(lengths.sum()) + np.repeat(begin - (np.cumsum(lengths) - lengths), lengths)
    parts = torch.split(_float_rows(segment, name, rows), lengths.tolist())
    return [part.numpy() for part in parts]


def decode_by_id(
    snapshot: Snapshot, name: str, documents_ids: Sequence[Sequence[DocumentId]]
) -> list[list[NDArray[np.float32]]]:
    """Return the rows of documents, in the structure of the ids."""
    if any(isinstance(ids, (str, int)) for ids in documents_ids):
        raise TypeError("documents_ids must be a list of lists of ids")
    result = []
    for ids in documents_ids:
        rows = snapshot.locate(ids)
        if (rows < 0).any():
            unknown = ids[int(np.argmin(rows))]
            raise UnknownDocumentError(f"no document {unknown!r} in the index")
        matrices: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(ids)
        for segment, local, positions in snapshot.by_segment(rows):
            decoded = decode_documents(segment, name, local)
            for position, matrix in zip(positions, decoded, strict=True):
                matrices[position] = matrix
        result.append(matrices)
    return result
