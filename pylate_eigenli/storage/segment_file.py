"""Segment files: the layout of documents in columns."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import IndexFormatError
from .batch import Batch, ColumnType, Schema
from .columns import Array, ColumnFile, write_columns
from .ids import DocumentId, EncodedIds
from .manifest import SegmentRecord, segment_name

# The stored name of a column starts with its kind, per document or per row: "document.length".
_PER_DOCUMENT, _PER_ROW = "document", "row"
_ROW_OFFSETS = "offsets"
_ID_TEXT, _ID_OFFSETS, _ID_IS_INTEGER = "id.text", "id.offsets", "id.is_integer"


def write_segment(folder: Path, uid: int, batch: Batch) -> SegmentRecord:
    """Write the documents of a batch as segment ``uid``."""
    ids = EncodedIds.encode(batch.document_ids)
    columns: dict[str, Array] = {
        _ID_TEXT: ids.text,
        _ID_OFFSETS: ids.offsets,
        **{f"{_PER_DOCUMENT}.{name}": column for name, column in batch.documents.items()},
        **{f"{_PER_ROW}.{name}": column for name, column in batch.rows.items()},
    }
    if ids.is_integer.any():
        columns[_ID_IS_INTEGER] = ids.is_integer
    if batch.rows:
        columns[_ROW_OFFSETS] = batch.offsets
    data = write_columns(folder / segment_name(uid), columns)
    return SegmentRecord(data, documents=len(batch), rows=int(batch.offsets[-1]))


class SegmentFile(ColumnFile):
    """All documents of a segment, including dead ones."""

    def __init__(self, folder: Path, record: SegmentRecord) -> None:
        super().__init__(folder, record.data)
        self._record = record
        n = record.documents
        if record.rows > record.data.bytes:
            raise IndexFormatError(f"{self.path} is too small for {record.rows} rows")
        own = {
            _ID_TEXT: (np.uint8, None),
            _ID_OFFSETS: (np.int64, n + 1),
            _ID_IS_INTEGER: (np.bool_, n),
            _ROW_OFFSETS: (np.int64, n + 1),
        }
        others = {_PER_DOCUMENT: n, _PER_ROW: record.rows}
        for name in (*self.names, *{_ID_TEXT, _ID_OFFSETS}.difference(self.names)):
            kind = name.partition(".")[0]
            if name not in self.names or (name not in own and kind not in others):
                raise IndexFormatError(f"{self.path} has no column {name!r}, or should have none")
            shape = self.shape(name)
            dtype, length = own[name] if name in own else (None, others[kind])
            if length is not None and shape[:1] != (length,):
                raise IndexFormatError(
                    f"column {name!r} of {self.path} has shape {shape}, "
                    f"but the manifest has {n} documents and {record.rows} rows"
                )
            if dtype is not None and (self.dtype(name) != dtype or len(shape) != 1):
                raise IndexFormatError(f"column {name!r} of {self.path} is of the wrong type")

    @cached_property
    def schema(self) -> Schema:
        """The type of every column, by its name without the kind."""
        return {
            column: ColumnType(per, self.dtype(name), self.shape(name)[1:])
            for name in self.names
            for per, _, column in [name.partition(".")]
            if per in (_PER_DOCUMENT, _PER_ROW)
        }

    def column(self, name: str) -> Array:
        """Return the column of this name."""
        if name not in self.schema:
            raise KeyError(f"{self.path} has no column {name!r}")
        return self.read(f"{self.schema[name].per}.{name}")

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Offsets of the rows of each document, int64 of shape ``(n + 1,)``."""
        if _ROW_OFFSETS in self.names:
            return self._offsets(_ROW_OFFSETS, self._record.rows)
        return np.zeros(self._record.documents + 1, dtype=np.int64)

    def _offsets(self, name: str, end: int) -> NDArray[np.int64]:
        """Return a column of offsets after checking them: kernels read wherever they point."""
        offsets: NDArray[np.int64] = self.read(name)
        if offsets[0] != 0 or offsets[-1] != end or (offsets[1:] < offsets[:-1]).any():
            raise IndexFormatError(f"column {name!r} of {self.path} does not rise from 0 to {end}")
        return offsets

    @cached_property
    def ids(self) -> EncodedIds:
        """The encoded ids of the documents."""
        text = self.read(_ID_TEXT)
        if _ID_IS_INTEGER in self.names:
            is_integer = self.read(_ID_IS_INTEGER)
        else:
            is_integer = np.zeros(self._record.documents, dtype=bool)
        return EncodedIds(text, self._offsets(_ID_OFFSETS, len(text)), is_integer)

    def ids_of(self, rows: NDArray[np.int64] | None = None) -> list[DocumentId]:
        """Return the ids of the documents at ``rows``, by default of all."""
        try:
            return self.ids.decode(rows)
        except ValueError as error:
            raise IndexFormatError(f"the ids of {self.path} cannot be read: {error}") from error

    @cached_property
    def row_of(self) -> dict[DocumentId, int]:
        """The row of each id, built at the first lookup."""
        return {document_id: row for row, document_id in enumerate(self.ids_of())}
