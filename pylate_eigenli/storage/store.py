"""The store: a folder that holds an index, for one writer and any number of readers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import IndexFormatError
from .columns import ColumnFile
from .lock import writer_lock
from .manifest import FileRecord, Manifest, collect_garbage
from .segment import Segment
from .snapshot import Snapshot, read_collection
from .transaction import Transaction

SEGMENT_BYTES = 64 * 2**20
MAX_DEAD_SHARE = 0.3

# Each retry means that a writer has committed in the time it takes to open the files.
_OPEN_ATTEMPTS = 100


class Store:
    """Named NumPy columns for documents, in a folder, safe against crashes.

    Readers never wait and see committed states only.  Nothing is read until it is needed, and
    nothing is created on disk before the first transaction.  Objects of this class may be
    shared between threads.

    Parameters
    ----------
    path
        The folder.
    segment_bytes
        Size of a full segment file, and of the memory that a writer fills before it writes one.
        Readers keep every segment mapped, which before Python 3.13 takes a file descriptor each.
    max_dead_share
        Share of the bytes that removed and replaced documents may take before a commit
        rewrites the segments that hold them.

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
        max_dead_share: float = MAX_DEAD_SHARE,
    ) -> None:
        if segment_bytes < 1:
            raise ValueError(f"segment_bytes must be positive, not {segment_bytes}")
        if not 0 < max_dead_share <= 1:
            raise ValueError(f"max_dead_share must be in (0, 1], not {max_dead_share}")
        self.path = Path(path)
        self._segment_bytes = segment_bytes
        self._max_dead_share = max_dead_share
        self._snapshot: Snapshot | None = None
        self._swapping = threading.Lock()

    @property
    def snapshot(self) -> Snapshot:
        """The state that was read or committed last.

        Raises
        ------
        IndexFormatError
            The index is damaged, or of a version this library does not read.
        """
        snapshot = self._snapshot
        return self._load() if snapshot is None else snapshot

    @property
    def nbytes(self) -> int:
        """Bytes on disk of the files of the snapshot."""
        return self.snapshot.nbytes

    def refresh(self) -> bool:
        """Move the snapshot to the newest committed state; returns whether it changed."""
        before = self.snapshot
        return self._load() is not before

    def close(self) -> None:
        """Let go of the open files.

        They are unmapped when the last array that comes from them is gone.  The store opens
        them again if it is used again.
        """
        self._snapshot = None

    @contextmanager
    def transaction(self, *, override: bool = False) -> Iterator[Transaction]:
        """Change the index: a commit if the ``with`` block ends well, no change at all otherwise.

        Parameters
        ----------
        override
            Start from nothing, without a look at what is there: replaces a damaged index too.

        Raises
        ------
        IndexLockedError
            Another writer is at work, in this process or another.
        """
        with writer_lock(self.path):
            transaction = Transaction(
                self.path,
                self._vacated() if override else self._load(),
                segment_bytes=self._segment_bytes,
                max_dead_share=self._max_dead_share,
            )
            try:
                if override:
                    transaction.clear()
                yield transaction
                snapshot = transaction.commit()
                with self._swapping:
                    self._snapshot = snapshot
            finally:
                transaction.close()
                # After a commit this deletes what was replaced, otherwise what was written: the
                # manifest on disk, not the way the block was left, decides which of the two.
                collect_garbage(self.path)

    def compact(self) -> None:
        """Rewrite the segments that hold dead documents or are small."""
        with self.transaction() as transaction:
            transaction.compact()

    def verify(self) -> list[str]:
        """Check every byte of the committed state on disk.

        Returns
        -------
        list of str
            What is damaged, one line per file or column; empty if all is well.
        """
        while True:
            try:
                manifest = Manifest.read(self.path)
                damage = [line for file in manifest.files() for line in _damage(self.path, file)]
                if not damage or Manifest.read(self.path) == manifest:
                    return damage
            except IndexFormatError as error:
                return [str(error)]

    def _load(self) -> Snapshot:
        # Reading and installing are one step for other threads: a slow reader must not put back
        # a state that is older than what a commit has installed in the meantime.
        with self._swapping:
            self._snapshot = self._newest(self._snapshot)
            return self._snapshot

    def _newest(self, previous: Snapshot | None) -> Snapshot:
        """The newest committed state, which takes over the open files of the previous one."""
        known = {} if previous is None else {s.record.data: s for s in previous.segments}
        manifest = Manifest.read(self.path)
        for _ in range(_OPEN_ATTEMPTS):
            if previous is not None and manifest == previous.manifest:
                return previous
            try:
                segments = [Segment.open(self.path, record, known) for record in manifest.segments]
                if previous is not None and manifest.collection == previous.manifest.collection:
                    return Snapshot(manifest, segments, previous.collection)
                return Snapshot(manifest, segments, read_collection(self.path, manifest.collection))
            except FileNotFoundError as error:
                # A writer may have committed, and deleted what it replaced, in the meantime.
                newer = Manifest.read(self.path)
                if newer == manifest:
                    raise IndexFormatError(
                        f"{error.filename} is missing, but the index needs it"
                    ) from error
                manifest = newer
        raise RuntimeError(f"{self.path} changed {_OPEN_ATTEMPTS} times while being opened")

    def _vacated(self) -> Snapshot:
        """An empty state that continues the numbering of whatever is in the folder."""
        try:
            committed = Manifest.read(self.path)
            manifest = Manifest(committed.generation, committed.next_uid)
        except IndexFormatError:
            manifest = Manifest.successor_of_unreadable(self.path)
        return Snapshot(manifest, [], {})


def _damage(folder: Path, record: FileRecord) -> list[str]:
    try:
        file = ColumnFile(folder, record)
    except FileNotFoundError:
        return [f"{folder / record.file} is missing"]
    except IndexFormatError as error:
        return [str(error)]
    return [f"column {name!r} of {file.path} is altered" for name in file.altered()]
