"""Transaction: changes to an index that become visible all at once, or not at all."""

from __future__ import annotations

import errno
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from ..errors import UnknownDocumentError
from .batch import Batch, check_same_schema
from .columns import Array, storable
from .disk import release_reserve
from .ids import DocumentId, checked_ids
from .manifest import Manifest, collect_garbage, collection_name
from .merging import plan_merges
from .segment import Segment, bury
from .snapshot import Snapshot, read_collection, write_collection
from .writer import SegmentWriter

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Transaction:
    """Changes to the state ``base``; :meth:`Store.transaction` returns it.

    Appended documents stay in memory up to the size of a segment, and are then written to files
    that no reader knows yet.  Only the ids stay in memory until the commit.

    Attributes
    ----------
    base
        The committed state at the start of the transaction.
    meta
        Metadata of the index as JSON values, which the caller can change.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pylate_eigenli.storage import Store
    >>> store = Store(tempfile.mkdtemp())
    >>> with store.transaction() as tx:
    ...     tx.meta["model"] = "colbert"
    ...     tx.append(["a", 2], documents={"length": np.array([180, 32], dtype=np.uint16)})
    ...     tx.remove([2])
    >>> list(store.snapshot), store.snapshot.meta["model"]
    (['a'], 'colbert')
    """

    def __init__(self, folder: Path, base: Snapshot, segment_bytes: int) -> None:
        self.base = base
        self.meta = _json_copy(base.manifest.meta)
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._uids = itertools.count(base.manifest.next_uid)
        self._kept = list(base.segments)
        self._writer = self._new_writer()
        self._new_ids: set[DocumentId] = set()
        self._collection: dict[str, Array] = dict(base.collection)
        self._cleared = self._compact = False
        self._usable = True

    def append(
        self,
        documents_ids: Iterable[DocumentId],
        documents: Mapping[str, object] | None = None,
        rows: Mapping[str, object] | None = None,
        lengths: ArrayLike | None = None,
    ) -> None:
        """Add documents, and replace documents with the same ids.

        Parameters
        ----------
        documents_ids
            Ids of the ``n`` documents; the transaction must not have added any of them before.
        documents
            Columns with one entry per document: arrays of shape ``(n, ...)`` by name.
        rows
            Columns with a run of rows per document: arrays of shape ``(sum(lengths), ...)``.
        lengths
            Number of rows of each document, integers of shape ``(n,)``.

        Raises
        ------
        ValueError
            An id appears twice, or the columns do not fit together or not the index.
        """
        self._check_usable()
        ids = checked_ids(documents_ids)
        batch = Batch.checked(ids, documents or {}, rows or {}, lengths)
        if not ids:
            return
        schema = self._kept[0].schema if self._kept else self._writer.schema
        if schema is not None:
            check_same_schema(batch.schema, schema)
        wanted = {document_id: number for number, document_id in enumerate(ids)}
        if len(wanted) < len(ids) or not self._new_ids.isdisjoint(wanted):
            repeated = next(i for n, i in enumerate(ids) if i in self._new_ids or wanted[i] != n)
            raise ValueError(f"document id {repeated!r} is added twice in one transaction")
        with self._all_or_nothing():
            self._kept, _ = bury(self._kept, wanted)
            self._new_ids.update(ids)
            self._writer.add(batch)

    def remove(self, documents_ids: Iterable[DocumentId]) -> None:
        """Remove documents.

        Raises
        ------
        UnknownDocumentError
            The index does not hold one of the documents. Then none is removed.
        """
        self._check_usable()
        ids = list(dict.fromkeys(checked_ids(documents_ids)))
        wanted = {document_id: number for number, document_id in enumerate(ids)}
        kept, found = bury(self._kept, wanted)
        written = None
        if not self._new_ids.isdisjoint(wanted):
            with self._all_or_nothing():
                self._writer.flush()
            written, found_new = bury(self._writer.segments, wanted)
            found |= found_new
        if not found.all():
            raise UnknownDocumentError(_unknown(ids, found.tolist()))
        release_reserve(self._folder)  # the end of the transaction makes it again
        self._kept = kept
        if written is not None:
            self._writer.segments = written
            self._new_ids.difference_update(ids)

    def clear(self) -> None:
        """Delete all documents, the metadata and the arrays of the collection."""
        self._check_usable()
        self.meta.clear()
        self._kept.clear()
        self._writer = self._new_writer()
        self._new_ids.clear()
        self._collection.clear()
        self._cleared = True

    def set_collection(self, name: str, array: object) -> None:
        """Set an array of the whole collection."""
        self._check_usable()
        if not isinstance(name, str) or not name:
            raise TypeError(f"the name of an array is a non-empty str, not {name!r}")
        self._collection[name] = storable(array, f"array {name!r}").copy()

    def compact(self) -> None:
        """Let the commit rewrite segments that hold dead documents or are small."""
        self._check_usable()
        self._compact = True

    def commit(self) -> Snapshot:
        """Commit the changes, and return the new state, or ``base`` if nothing changed.

        Only :meth:`Store.transaction` calls this.
        """
        self._check_usable()
        meta = _json_copy(self.meta)
        segments = [*self._kept, *self._writer.segments]
        changed = self._is_changed(segments, meta)
        runs: list[range] = []
        if changed or self._compact:
            n_new = self._writer.n_pending
            runs = plan_merges(segments, n_new, self._segment_bytes, self._compact)
        if not changed and not runs:
            return self.base
        generation = self.base.generation + 1
        can_wait = not self._writer.n_pending and not self._compact  # new documents are in the runs
        try:
            merged = self._merged(segments, runs)
        except OSError as error:
            if not can_wait or error.errno not in _FULL:
                raise
            # Removing must work on a full disk: tombstones are small, and merging can wait.
            merged = segments
            collect_garbage(self._folder, {segment.record.data.file for segment in segments})
        segments = [segment.saved(self._folder, generation) for segment in merged]
        record, collection = self.base.manifest.collection, self.base.collection
        if self._is_collection_changed():
            path = self._folder / collection_name(generation)
            record = write_collection(path, self._collection) if self._collection else None
            collection = read_collection(self._folder, record)
        manifest = Manifest(
            generation, next(self._uids), meta, tuple(s.record for s in segments), record
        )
        manifest.write(self._folder)
        return Snapshot(manifest, segments, collection)

    def close(self) -> None:
        """End the transaction and close its files."""
        self._usable = False
        self._kept.clear()
        self._writer = self._new_writer()

    def _is_changed(self, segments: list[Segment], meta: dict[str, Any]) -> bool:
        return (
            (self._cleared and self.base.generation > 0)
            or self._writer.n_pending > 0
            or segments != list(self.base.segments)
            or _to_json(meta) != _to_json(self.base.manifest.meta)
            or self._is_collection_changed()
        )

    def _is_collection_changed(self) -> bool:
        before = self.base.collection
        return self._collection.keys() != before.keys() or any(
            self._collection[name] is not before[name] for name in before
        )

    def _merged(self, segments: Sequence[Segment], runs: Sequence[range]) -> list[Segment]:
        """Rewrite each run as one segment, add pending documents to the last, and return all."""
        merged: list[Segment] = []
        done = 0
        for run in runs:
            writer = self._new_writer()
            for segment in segments[run.start : run.stop]:
                writer.add(segment.living())
            if run.stop == len(segments):
                for batch in self._writer.drain():
                    writer.add(batch)
            writer.flush()
            merged += [*segments[done : run.start], *writer.segments]
            done = run.stop
        return [*merged, *segments[done:]]

    def _new_writer(self) -> SegmentWriter:
        return SegmentWriter(self._folder, self._segment_bytes, self._uids)

    def _check_usable(self) -> None:
        if not self._usable:
            raise RuntimeError("the transaction has ended, or one of its writes has failed")

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Make the transaction unusable if the block raises, even if the caller catches it."""
        self._usable = False
        yield
        self._usable = True


def _unknown(ids: Sequence[DocumentId], found: Sequence[bool]) -> str:
    missing = [repr(i) for i, is_found in zip(ids, found, strict=True) if not is_found]
    shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
    return f"{len(missing)} of {len(ids)} documents are not in the index: {shown}"


def _json_copy(meta: Mapping[str, Any]) -> dict[str, Any]:
    try:
        copied: dict[str, Any] = json.loads(_to_json(meta))
    except (TypeError, ValueError) as error:
        raise ValueError(f"meta must consist of JSON values: {error}") from error
    return copied


def _to_json(meta: Mapping[str, Any]) -> str:
    return json.dumps(meta, allow_nan=False)
