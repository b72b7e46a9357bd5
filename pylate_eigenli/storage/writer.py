"""SegmentWriter: batches to segments of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .batch import Batch, Schema
from .segment import Segment
from .segment_file import write_segment


class SegmentWriter:
    """Buffers documents until they fill a segment; a larger document gets its own segment."""

    def __init__(self, folder: Path, segment_bytes: int, uids: Iterator[int]) -> None:
        self.segments: list[Segment] = []
        self.n_pending = 0
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._uids = uids
        self._pending: list[Batch] = []
        self._pending_bytes = 0

    @property
    def schema(self) -> Schema | None:
        """The type of every column; None before the first document."""
        if self.segments:
            return self.segments[0].schema
        return self._pending[0].schema if self._pending else None

    def add(self, batch: Batch) -> None:
        """Add a copy of the documents of a batch."""
        ends = np.cumsum(batch.costs)
        start = taken = 0
        while start < len(batch):
            room = self._segment_bytes - self._pending_bytes
            stop = int(np.searchsorted(ends, taken + room, side="right"))
            if stop <= start:  # the next document does not fit
                if self._pending:
                    self.flush()
                    continue
                stop = start + 1
            self._pending.append(batch.take(np.arange(start, stop)))
            self._pending_bytes += int(ends[stop - 1]) - taken
            self.n_pending += stop - start
            start, taken = stop, int(ends[stop - 1])

    def flush(self) -> None:
        """Write the buffered documents as a segment."""
        if pending := self.drain():
            record = write_segment(self._folder, next(self._uids), Batch.concatenate(pending))
            self.segments.append(Segment.open(self._folder, record, known={}))

    def drain(self) -> list[Batch]:
        """Return and clear the buffer without writing it."""
        pending, self._pending = self._pending, []
        self._pending_bytes = self.n_pending = 0
        return pending
