"""Segment: an immutable file of documents, and the mask of living documents."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import IndexFormatError
from .batch import Batch, Schema, take_columns
from .columns import Array, ColumnFile, write_columns
from .ids import DocumentId
from .manifest import FileRecord, SegmentRecord, dead_name
from .segment_file import SegmentFile

_DEAD = "dead"


@dataclass(frozen=True, eq=False)
class Segment:
    """Some documents of a snapshot, in order of insertion.

    Attributes
    ----------
    alive
        bool of shape ``(n_documents,)``: false for documents that were removed or replaced.

    Examples
    --------
    >>> import tempfile
    >>> from pylate_eigenli.storage import Store
    >>> store = Store(tempfile.mkdtemp())
    >>> with store.transaction() as tx:
    ...     tokens = np.arange(6, dtype=np.float32).reshape(3, 2)
    ...     tx.append(["a", "b"], rows={"tokens": tokens}, lengths=[2, 1])
    >>> (segment,) = store.snapshot.segments
    >>> segment.column("tokens")[segment.offsets[1] : segment.offsets[2]]
    array([[4., 5.]], dtype=float32)
    """

    file: SegmentFile
    record: SegmentRecord
    alive: NDArray[np.bool_]

    def __post_init__(self) -> None:
        self.alive.flags.writeable = False

    @classmethod
    def open(cls, folder: Path, record: SegmentRecord, known: dict[FileRecord, Segment]) -> Segment:
        """Open a segment, or reuse an open one.

        ``known`` maps files to open segments.  A segment of the same file is reused with its new
        tombstones.  The result is added to ``known``.
        """
        segment = known.get(record.data)
        if segment is None or segment.record != record:
            file = SegmentFile(folder, record) if segment is None else segment.file
            segment = known[record.data] = cls(file, record, read_alive(folder, record))
        return segment

    @property
    def n_documents(self) -> int:
        """Number of documents in the file, dead ones included."""
        return self.record.documents

    @property
    def n_alive(self) -> int:
        """Number of documents that are alive."""
        return self.record.documents - self.record.dead_count

    @property
    def nbytes(self) -> int:
        """Size of the file."""
        return self.record.data.bytes

    @property
    def schema(self) -> Schema:
        """The type of every column."""
        return self.file.schema

    @property
    def offsets(self) -> NDArray[np.int64]:
        """int64 of shape ``(n_documents + 1,)``: document ``i`` owns the rows
        ``offsets[i]:offsets[i + 1]`` of the columns per row."""
        return self.file.offsets

    def has(self, name: str) -> bool:
        """Return whether the segment has a column of this name."""
        return name in self.file.schema

    def column(self, name: str) -> Array:
        """Return a column, memory-mapped and read-only; it includes dead documents.

        Its shape is ``(n_documents, ...)``, or ``(offsets[-1], ...)`` for a column per row.
        """
        return self.file.column(name)

    def ids(self, rows: NDArray[np.int64] | None = None) -> list[DocumentId]:
        """Return the ids of the documents at ``rows``, by default of all, dead ones included."""
        return self.file.ids_of(rows)

    def find(self, wanted: dict[DocumentId, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Look up many documents at once.

        Returns the numbers in ``wanted`` of those that are alive in this segment, and their rows:
        two int64 arrays of equal length, in no particular order.
        """
        held = self.file.row_of
        common = list(wanted.keys() & held.keys())  # takes time in the size of the smaller side
        rows = np.fromiter((held[i] for i in common), dtype=np.int64, count=len(common))
        numbers = np.fromiter((wanted[i] for i in common), dtype=np.int64, count=len(common))
        alive = self.alive[rows]
        return numbers[alive], rows[alive]

    def without(self, rows: NDArray[np.int64]) -> Segment:
        """Return this segment with the documents at ``rows`` marked dead, in memory only."""
        alive = self.alive.copy()
        alive[rows] = False
        dead_count = self.n_documents - int(np.count_nonzero(alive))
        return Segment(self.file, replace(self.record, dead=None, dead_count=dead_count), alive)

    def saved(self, folder: Path, generation: int) -> Segment:
        """Write new tombstones to a file of ``generation``, and return the saved segment."""
        if self.record.dead is not None or not self.record.dead_count:
            return self
        path = folder / dead_name(self.record.uid, generation)
        dead = write_columns(path, {_DEAD: np.packbits(~self.alive)})
        return Segment(self.file, replace(self.record, dead=dead), self.alive)

    def batch(self, rows: NDArray[np.int64], names: Container[str]) -> Batch:
        """Return the documents at ``rows``, with those of their columns that ``names`` has."""
        documents, per_row = (
            {
                name: self.column(name)
                for name, kind in self.schema.items()
                if kind.per == per and name in names
            }
            for per in ("document", "row")
        )
        return Batch(self.ids(rows), *take_columns(documents, per_row, self.offsets, rows))

    def living(self) -> Batch:
        """Return the living documents."""
        return self.batch(np.flatnonzero(self.alive), self.schema)


def bury(
    segments: Iterable[Segment], wanted: dict[DocumentId, int]
) -> tuple[list[Segment], NDArray[np.bool_]]:
    """Mark documents, numbered from 0, as dead, and drop segments without living documents.

    Returns the remaining segments, and a mask of shape ``(len(wanted),)``: true for documents that
    were alive.
    """
    remaining, found = [], np.zeros(len(wanted), dtype=bool)
    for segment in segments:
        numbers, rows = segment.find(wanted)
        found[numbers] = True
        after = segment.without(rows) if len(rows) else segment
        if after.n_alive:
            remaining.append(after)
    return remaining, found


def read_alive(folder: Path, record: SegmentRecord) -> NDArray[np.bool_]:
    """Return the mask of the living documents of a segment."""
    alive = np.ones(record.documents, dtype=bool)
    if record.dead is not None:
        file = ColumnFile(folder, record.dead)
        packed = file.read(_DEAD) if _DEAD in file.names else np.empty(0, np.uint8)
        if packed.shape == (-(-record.documents // 8),) and packed.dtype == np.uint8:
            alive = np.unpackbits(packed, count=record.documents) == 0
        if np.count_nonzero(~alive) != record.dead_count:
            raise IndexFormatError(
                f"{file.path} does not match the manifest, which has {record.dead_count} "
                f"tombstones for {record.documents} documents"
            )
    return alive
