"""Turns a stream of batches into segments of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .batch import Batch, Schema
from .segment import Segment


class SegmentWriter:
    """Holds documents back until they fill a segment.

    Parameters
    ----------
    folder
        Folder of the index.
    segment_bytes
        Bytes of a full segment; a document that takes more has a segment to itself.
    uids
        Source of numbers for new segments.
    """

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
        """The type of every column, once there is a document."""
        if self.segments:
            return self.segments[0].schema
        return self._pending[0].schema if self._pending else None

    def add(self, batch: Batch) -> None:
        """Take the documents of a batch, which the caller may overwrite afterwards."""
        ends = np.cumsum(batch.costs())
        start = taken = 0
        while start < len(batch):
            room = self._segment_bytes - self._pending_bytes
            stop = int(np.searchsorted(ends, taken + room, side="right"))
            if stop <= start:  # not even the next document fits
                if self._pending:
                    self.flush()
                    continue
                stop = start + 1
            # Concatenating is what copies.
            self._pending.append(Batch.concatenate([batch.span(start, stop)]))
            self._pending_bytes += int(ends[stop - 1]) - taken
            self.n_pending += stop - start
            start, taken = stop, int(ends[stop - 1])

    def flush(self) -> None:
        """Write what is held back."""
        if pending := self.drain():
            batch = Batch.concatenate(pending)
            self.segments.append(Segment.write(self._folder, next(self._uids), batch))

    def drain(self) -> list[Batch]:
        """Give up what is held back, unwritten."""
        pending, self._pending = self._pending, []
        self._pending_bytes = self.n_pending = 0
        return pending
