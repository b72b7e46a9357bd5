"""Store: the folder of an index, with one writer and any number of readers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import IndexFormatError
from .batch import check_same_schema
from .columns import ColumnFile
from .disk import keep_reserve
from .lock import writer_lock
from .manifest import FileRecord, Manifest, collect_garbage
from .segment import Segment
from .snapshot import Snapshot, read_collection
from .transaction import Transaction

SEGMENT_BYTES = 64 * 2**20

# A retry is needed only if a writer commits while the files are being opened.
_OPEN_ATTEMPTS = 100


class Store:
    """Crash-safe storage of documents as named NumPy columns in a folder.

    Readers never wait, and they see committed states only.  Files are read on demand, and nothing
    is created on disk before the first transaction.  Threads can share a store.

    Parameters
    ----------
    path
        The folder.
    segment_bytes
        Size of a full segment file. A writer keeps as many bytes in memory before it writes one.
        Readers map every segment, which takes one file descriptor each before Python 3.13.
    override
        Start from an empty index, without reading the old one, which may be damaged. The first
        commit replaces the old one; until then it stays on disk.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> store = Store(tempfile.mkdtemp())
    >>> with store.transaction() as tx:
    ...     tx.append(["a", "b"], documents={"vector": np.eye(2, dtype=np.float32)})
    >>> reader = Store(store.path)
    >>> for start, segment in zip(reader.snapshot.starts, reader.snapshot.segments):
    ...     print(start, segment.ids(), segment.column("vector").sum())
    0 ['a', 'b'] 2.0
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        segment_bytes: int = SEGMENT_BYTES,
        override: bool = False,
    ) -> None:
        if segment_bytes < 1:
            raise ValueError(f"segment_bytes must be positive, not {segment_bytes}")
        self.path = Path(path)
        self._segment_bytes = segment_bytes
        self._overriding = override
        self._snapshot: Snapshot | None = None
        self._swapping = threading.Lock()

    @property
    def snapshot(self) -> Snapshot:
        """The last state that this store has read or committed.

        Raises
        ------
        IndexFormatError
            The index is damaged, or has a version that this library cannot read.
        """
        snapshot = self._snapshot
        return self._load() if snapshot is None else snapshot

    @property
    def is_overriding(self) -> bool:
        """Whether the next commit replaces the index that is on disk."""
        return self._overriding

    def refresh(self) -> bool:
        """Load the newest committed state, and return whether it is a new one."""
        before = self.snapshot
        return self._load() is not before

    def close(self) -> None:
        """Close the files.

        A file is unmapped when its last array is deleted.  The store opens the files again when it
        is used again.
        """
        self._snapshot = None

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Change the index: commit at the end of the ``with`` block, or roll back on an exception.

        Raises
        ------
        IndexLockedError
            Another writer holds the lock, in this process or another.
        """
        with writer_lock(self.path):
            base = self._vacated() if self._overriding else self._load()
            if not base.generation:
                # From now on, files without a manifest mean that it was lost.
                base.manifest.write(self.path)
            transaction = Transaction(self.path, base, self._segment_bytes)
            try:
                if self._overriding:
                    transaction.clear()
                yield transaction
                snapshot = transaction.commit()
                with self._swapping:
                    self._snapshot = snapshot
                    self._overriding = False
            finally:
                transaction.close()
                # Deletes the replaced files after a commit, and the new files otherwise. The
                # manifest on disk decides between the two cases, not the exit from the block.
                collect_garbage(self.path)
                keep_reserve(self.path, _bytes_to_remove(self._snapshot or base))

    def compact(self) -> None:
        """Rewrite the segments that hold dead documents or are small."""
        with self.transaction() as transaction:
            transaction.compact()

    def verify(self) -> list[str]:
        """Check every byte of the committed state on disk; return a line per damage."""
        while True:
            try:
                manifest = Manifest.read(self.path)
                damage = [line for file in manifest.files() for line in _damage(self.path, file)]
                if not damage or Manifest.read(self.path) == manifest:
                    return damage
            except (IndexFormatError, OSError) as error:
                return [str(error)]

    def _load(self) -> Snapshot:
        # The lock covers reading and installing, so that a slow reader cannot replace the snapshot
        # of a newer commit by an older one.
        with self._swapping:
            if not self._overriding:
                self._snapshot = self._newest(self._snapshot)
            elif self._snapshot is None:
                self._snapshot = self._vacated()
            return self._snapshot

    def _newest(self, previous: Snapshot | None) -> Snapshot:
        """Return the newest committed state, which reuses the open files of the previous one."""
        known = {} if previous is None else {s.record.data: s for s in previous.segments}
        manifest = Manifest.read(self.path)
        for _ in range(_OPEN_ATTEMPTS):
            if previous is not None and manifest == previous.manifest:
                return previous
            try:
                segments = [Segment.open(self.path, record, known) for record in manifest.segments]
                _check_same_columns(segments)
                if previous is not None and manifest.collection == previous.manifest.collection:
                    return Snapshot(manifest, segments, previous.collection)
                return Snapshot(manifest, segments, read_collection(self.path, manifest.collection))
            except FileNotFoundError as error:
                # A writer may have committed since, and deleted the files that it replaced.
                newer = Manifest.read(self.path)
                if newer == manifest:
                    raise IndexFormatError(
                        f"{error.filename} is missing, but the index needs it"
                    ) from error
                manifest = newer
        raise RuntimeError(f"{self.path} changed {_OPEN_ATTEMPTS} times while being opened")

    def _vacated(self) -> Snapshot:
        """Return an empty state that continues the numbering of the files in the folder."""
        try:
            committed = Manifest.read(self.path)
            manifest = Manifest(committed.generation, committed.next_uid)
        except IndexFormatError:
            manifest = Manifest.successor_of_unreadable(self.path)
        return Snapshot(manifest, [], {})


def _check_same_columns(segments: Sequence[Segment]) -> None:
    for segment in segments[1:]:
        try:
            check_same_schema(segment.schema, segments[0].schema)
        except ValueError as error:
            raise IndexFormatError(
                f"{segment.file.path} does not fit the others: {error}"
            ) from error


def _bytes_to_remove(state: Snapshot) -> int:
    """Return how much space removing documents takes at most, with what accompanies it."""
    if not state.segments:
        return 0
    collection = state.manifest.collection
    return (128 << 10) + int(state.starts[-1]) // 4 + (collection.bytes if collection else 0)


def _damage(folder: Path, record: FileRecord) -> list[str]:
    try:
        file = ColumnFile(folder, record)
    except FileNotFoundError:
        return [f"{folder / record.file} is missing"]
    except (IndexFormatError, OSError) as error:
        return [str(error)]
    return [f"column {name!r} of {file.path} is altered" for name in file.altered()]
