"""Snapshot: one committed state of an index, as a reader sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .columns import Array, ColumnFile, write_columns
from .ids import DocumentId, checked_id, checked_ids, offsets_of
from .manifest import FileRecord, Manifest
from .segment import Segment

_ARRAY = "array."

# A file that is not mapped gives its space back when it is deleted, which a full disk needs.
_SMALL = 16 << 20


class Snapshot(Collection[DocumentId]):
    """An immutable state of an index: the collection of its living documents.

    A snapshot keeps its files open, so later commits do not change it.  The global row of a
    document is its position among the documents of all segments, including dead documents.

    Attributes
    ----------
    segments
        The segments, oldest first.
    starts
        int64 of shape ``(len(segments) + 1,)``: the first global row of each segment, and the
        number of global rows.
    collection
        Arrays of the whole collection, by name; read-only.

    Examples
    --------
    >>> import tempfile
    >>> from pylate_eigenli.storage import Store
    >>> store = Store(tempfile.mkdtemp())
    >>> with store.transaction() as tx:
    ...     tx.append(["a", "b", "c"], documents={"year": np.array([1998, 2004, 2020])})
    >>> with store.transaction() as tx:
    ...     tx.remove(["b"])
    >>> snapshot = store.snapshot
    >>> list(snapshot), "b" in snapshot
    (['a', 'c'], False)
    >>> snapshot.locate(["c", "b"])
    array([ 2, -1])
    >>> snapshot.ids_of([2, 0])
    ['c', 'a']
    """

    def __init__(
        self, manifest: Manifest, segments: Iterable[Segment], collection: Mapping[str, Array]
    ) -> None:
        self.manifest = manifest
        self.segments = tuple(segments)
        self.collection: Mapping[str, Array] = MappingProxyType(dict(collection))
        self.starts = offsets_of([segment.n_documents for segment in self.segments])
        self.starts.flags.writeable = False

    @property
    def generation(self) -> int:
        """Number of the commit of this state; 0 before the first commit."""
        return self.manifest.generation

    @property
    def meta(self) -> Mapping[str, Any]:
        """Metadata of the index, as JSON values."""
        return MappingProxyType(dict(self.manifest.meta))

    @property
    def nbytes(self) -> int:
        """Size of the files of this state in bytes."""
        if not self.generation:
            return 0
        return sum(file.bytes for file in self.manifest.files()) + len(self.manifest.to_bytes())

    def __len__(self) -> int:
        return sum(segment.n_alive for segment in self.segments)

    def __iter__(self) -> Iterator[DocumentId]:
        for segment in self.segments:
            yield from segment.ids(np.flatnonzero(segment.alive))

    def __contains__(self, document_id: object) -> bool:
        wanted = {checked_id(document_id): 0}
        return any(len(segment.find(wanted)[1]) for segment in self.segments)

    def locate(self, documents_ids: Iterable[DocumentId]) -> NDArray[np.int64]:
        """Return the global rows of documents, or -1; int64 of shape ``(len(documents_ids),)``."""
        ids = checked_ids(documents_ids)
        wanted = {document_id: number for number, document_id in enumerate(dict.fromkeys(ids))}
        rows = np.full(len(wanted), -1, dtype=np.int64)
        for start, segment in zip(self.starts, self.segments, strict=False):
            numbers, found = segment.find(wanted)
            rows[numbers] = start + found
        return rows[[wanted[document_id] for document_id in ids]] if ids else rows

    def ids_of(self, rows: ArrayLike) -> list[DocumentId]:
        """Return the ids of the documents at global rows, a flat sequence of integers."""
        ids: dict[int, DocumentId] = {}
        for segment, local_rows, positions in self.by_segment(rows):
            ids.update(zip(positions.tolist(), segment.ids(local_rows), strict=True))
        return [ids[position] for position in range(len(ids))]

    def by_segment(
        self, rows: ArrayLike
    ) -> Iterator[tuple[Segment, NDArray[np.int64], NDArray[np.int64]]]:
        """Group global rows by segment.

        Yields
        ------
        segment, local_rows, positions
            A segment, the rows within it, and their positions in ``rows``.
        """
        wanted = np.asarray(rows, dtype=np.int64).reshape(-1)
        if wanted.size and (wanted.min() < 0 or wanted.max() >= self.starts[-1]):
            raise IndexError(f"global rows run from 0 to {self.starts[-1] - 1}")
        owners = np.searchsorted(self.starts, wanted, side="right") - 1
        order = np.argsort(owners, kind="stable")
        boundaries = np.flatnonzero(np.diff(owners[order])) + 1
        for positions in np.split(order, boundaries):
            if positions.size:
                owner = int(owners[positions[0]])
                yield self.segments[owner], wanted[positions] - self.starts[owner], positions


def write_collection(path: Path, arrays: Mapping[str, Array]) -> FileRecord:
    """Write the arrays of a collection to ``path``."""
    return write_columns(path, {_ARRAY + name: array for name, array in arrays.items()})


def read_collection(folder: Path, record: FileRecord | None) -> dict[str, Array]:
    """Return the arrays of a collection, verified and read-only; large ones are memory-mapped."""
    if record is None:
        return {}
    file = ColumnFile(folder, record)
    arrays = {name.removeprefix(_ARRAY): file.read(name) for name in file.names}
    if record.bytes <= _SMALL:
        arrays = {name: array.copy() for name, array in arrays.items()}
        for array in arrays.values():
            array.flags.writeable = False
    return arrays
