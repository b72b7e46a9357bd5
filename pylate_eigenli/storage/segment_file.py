"""Segment files: the layout of documents in columns."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import IndexFormatError
from .batch import Batch, ColumnType, Schema
from .columns import ColumnFile, write_columns
from .ids import DocumentId, IdColumn
from .manifest import SegmentRecord, segment_name
from .ragged import Array, Ragged

# The stored name of a column starts with its kind, per document or per row: "document.length".
_PER_DOCUMENT, _PER_ROW = "document", "row"
_ROW_OFFSETS = "offsets"
_ID_TEXT, _ID_OFFSETS, _ID_IS_INTEGER = "id.text", "id.offsets", "id.is_integer"


def write_segment(folder: Path, uid: int, batch: Batch) -> SegmentRecord:
    """Write the documents of a batch as segment ``uid``."""
    columns = {
        _ID_TEXT: batch.ids.text.columns["text"],
        _ID_OFFSETS: batch.ids.text.offsets,
        **{f"{_PER_DOCUMENT}.{name}": column for name, column in batch.documents.items()},
        **{f"{_PER_ROW}.{name}": column for name, column in batch.rows.columns.items()},
    }
    if batch.ids.is_integer.any():
        columns[_ID_IS_INTEGER] = batch.ids.is_integer
    if batch.rows.columns:
        columns[_ROW_OFFSETS] = batch.rows.offsets
    data = write_columns(folder / segment_name(uid), columns)
    return SegmentRecord(data, documents=len(batch), rows=int(batch.rows.offsets[-1]))


class SegmentFile(ColumnFile):
    """All documents of a segment, including dead ones."""

    def __init__(self, folder: Path, record: SegmentRecord) -> None:
        super().__init__(folder, record.data)
        self._n_documents = record.documents
        lengths = {
            _PER_DOCUMENT: record.documents,
            _PER_ROW: record.rows,
            _ID_OFFSETS: record.documents + 1,
            _ROW_OFFSETS: record.documents + 1,
        }
        for name in self.names:
            length = lengths.get(name, lengths.get(name.partition(".")[0]))
            if length is not None and self.shape(name)[:1] != (length,):
                raise IndexFormatError(
                    f"column {name!r} of {self.path} has shape {self.shape(name)}, "
                    f"but the manifest has {record.documents} documents and {record.rows} rows"
                )

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
            return self.read(_ROW_OFFSETS)
        return np.zeros(self._n_documents + 1, dtype=np.int64)

    @cached_property
    def ids(self) -> IdColumn:
        """The encoded ids of the documents."""
        text = Ragged({"text": self.read(_ID_TEXT)}, self.read(_ID_OFFSETS))
        if _ID_IS_INTEGER in self.names:
            return IdColumn(text, self.read(_ID_IS_INTEGER))
        return IdColumn(text, np.zeros(self._n_documents, dtype=bool))

    @cached_property
    def row_of(self) -> dict[DocumentId, int]:
        """The row of each id, built at the first lookup."""
        return {document_id: row for row, document_id in enumerate(self.ids.decode())}

    def batch(self) -> Batch:
        """Return all documents as mapped arrays."""
        documents, rows = (
            {name: self.column(name) for name, kind in self.schema.items() if kind.per == per}
            for per in (_PER_DOCUMENT, _PER_ROW)
        )
        return Batch(self.ids, documents, Ragged(rows, self.offsets))
