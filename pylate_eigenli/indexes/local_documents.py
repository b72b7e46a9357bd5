"""Documents in the files of the index's own folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import IndexFormatError, UnknownDocumentError
from ..spectral.background import Background
from ..storage import DocumentId, Segment, Snapshot, Transaction
from ..storage.batch import Batch
from ..storage.manifest import SegmentRecord
from . import columns
from .ann.accelerator import Accelerator
from .codecs import Codec
from .collection import Collection, store_background, stored_background
from .documents import Allowed, Progress, SearchRequest, Subset, TokenBatches, after_commit
from .exact_search import ExactSearch
from .inputs import subset_per_query
from .results import Found
from .vector_search import VectorSearch

_COUNTED_AT_ONCE = 1024
# The dimension of the tokens of documents, their codec, and the documents.
_Encoded: TypeAlias = Iterator[tuple[int, Codec, Batch]]


class LocalDocuments:
    """Documents in crash-safe files: every change is atomic, and a state stays as it is.

    ``ann`` keeps an ANN structure over them, if they are vectors.
    """

    in_database = False
    thread_safe = True

    def __init__(
        self,
        collection: Collection[Any, Any],
        searcher: ExactSearch | VectorSearch,
        ann: Accelerator | None = None,
    ) -> None:
        self._collection = collection
        self._searcher = searcher
        self._ann = ann
        # The background of each segment, computed when it was first needed.
        self._counted: dict[SegmentRecord, Background] = {}

    def count(self, state: Snapshot) -> int:
        return len(state)

    def nbytes(self, state: Snapshot) -> int:
        return state.nbytes

    def missing(self, state: Snapshot, ids: list[DocumentId]) -> list[DocumentId]:
        rows = state.locate(ids)
        return [document_id for document_id, row in zip(ids, rows, strict=True) if row < 0]

    def compact(self) -> None:
        self._collection.store.compact()

    def close(self) -> None:
        self._searcher.clear()

    # --- changing -----------------------------------------------------------------------------

    def add(self, batches: Callable[[int | None], TokenBatches], progress: Progress) -> None:
        def encoded(base: Snapshot) -> _Encoded:
            codec = self._collection.codec(base)
            for ids, tokens in batches(self._collection.dim(base)):
                if not codec.fitted:
                    codec = self._collection.codec(base, tokens.dim)
                codec, documents = codec.encode(ids, tokens)
                yield tokens.dim, codec, documents

        self._append(encoded, progress)

    def transfer(
        self,
        dim: int,
        codec: Codec,
        batches: Callable[[Codec], Iterable[Batch]],
        progress: Progress,
    ) -> None:
        encoded = ((dim, codec, documents) for documents in batches(codec))
        self._append(lambda _: encoded, progress)

    def _append(self, encoded: Callable[[Snapshot], _Encoded], progress: Progress) -> None:
        with self._collection.store.transaction() as transaction:
            base = transaction.base
            codec = known = self._collection.codec(base)
            background = self._maintained(base, codec)
            for dim, codec, documents in encoded(base):
                ids = documents.ids()
                if not transaction.meta:
                    self._collection.begin(transaction, codec, dim)
                if codec.labelled:
                    first = transaction.meta.get("next_label", 0)
                    transaction.meta["next_label"] = first + len(ids)
                    documents = columns.with_labels(documents, first)
                transaction.append(
                    ids,
                    documents=documents.documents,
                    rows=documents.rows,
                    lengths=np.diff(documents.offsets) if documents.rows else None,
                )
                if background is not None:
                    added = codec.matrix_sum(documents, np.arange(len(ids)))
                    if not len(background.total):
                        background = Background.empty(len(added))
                    replaced = self._matrices_of(base, codec, ids)
                    background = background.minus(*replaced).plus(added, len(ids))
                progress.update(len(ids))
            if codec.settings.standardise and codec is not known:
                self._collection.keep(transaction, codec)  # it has learnt from all of them
            self._before_commit(transaction, background)
        state = self._collection.snapshot
        settings = self._collection.settings(state)
        if self._ann is not None and self._ann.is_due(state, settings):
            remedy = "searches scan them until build() succeeds"
            with after_commit(self._collection.path, f"building {settings.backend}", remedy):
                self.build()

    def remove(self, ids: list[DocumentId]) -> None:
        with self._collection.store.transaction() as transaction:
            base = transaction.base
            codec = self._collection.codec(base)
            transaction.remove(ids)
            background = self._maintained(base, codec)
            if background is not None:
                background = background.minus(*self._matrices_of(base, codec, ids))
            self._before_commit(transaction, background)

    def _before_commit(self, transaction: Transaction, background: Background | None) -> None:
        if background is not None:
            store_background(transaction, self._checked(background))
        if self._collection.companion is not None:
            self._collection.companion(transaction)

    def build(self) -> None:
        settings = self._collection.settings(self._collection.snapshot)
        if self._ann is None or settings.backend == "exact" or not len(self._collection.snapshot):
            return
        with self._collection.store.transaction() as transaction:
            self._ann.build(transaction, self._collection.codec(transaction.base))

    # --- the background -----------------------------------------------------------------------

    def background(self, state: Snapshot) -> Background | None:
        stored = stored_background(state)
        if stored is not None or not state.segments:
            return stored
        codec = self._collection.codec(state)
        known = self._counted
        self._counted = {
            segment.record: known.get(segment.record) or _counted(segment, codec)
            for segment in state.segments
        }
        first, *others = [self._counted[segment.record] for segment in state.segments]
        for other in others:
            first = first.plus(other.total, other.documents)
        return self._checked(first)

    def _checked(self, background: Background) -> Background:
        if not np.isfinite(background.total).all():
            path = self._collection.path
            raise IndexFormatError(f"documents of {path} have values that are not numbers")
        return background

    def _maintained(self, base: Snapshot, codec: Codec) -> Background | None:
        """Return the background of a state if changes have to keep it up to date.

        It is stored if searches use it by default. Otherwise it is computed when one asks for it.
        """
        stored = stored_background(base)
        settings = codec.settings
        needed = settings.idf or (settings.background and not settings.standardise)
        if stored is not None or not needed:
            return stored
        return self.background(base) or Background.empty(0)

    def _matrices_of(
        self, state: Snapshot, codec: Codec, ids: Sequence[DocumentId]
    ) -> tuple[NDArray[np.float64] | float, int]:
        """Return the sum of the matrices of those documents that are there, and their number."""
        rows = state.locate(ids)
        rows = np.unique(rows[rows >= 0])
        parts = [codec.matrix_sum(segment, local) for segment, local, _ in state.by_segment(rows)]
        return sum(parts, 0.0), len(rows)

    # --- reading ------------------------------------------------------------------------------

    def search(self, state: Snapshot, request: SearchRequest, subset: Subset) -> Iterable[Found]:
        allowed = _allowed_rows(state, subset, len(request.queries))
        for rows, scores in self._searcher.search(state, request, allowed):
            yield Found(state.ids_of(rows), scores)

    def kept(self, state: Snapshot, ids: list[DocumentId]) -> list[NDArray[np.float32]]:
        matrices: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(ids)
        for segment, local, positions in state.by_segment(_located(state, ids)):
            decoded = columns.kept(segment, local)
            for position, matrix in zip(positions, decoded, strict=True):
                matrices[position] = matrix
        return matrices

    def columns(
        self, state: Snapshot, ids: list[DocumentId] | None, batch_size: int, kept: bool
    ) -> Iterator[Batch]:
        if ids is not None:
            rows = _located(state, ids)
        else:
            starts = zip(state.starts, state.segments, strict=False)
            living = [start + np.flatnonzero(segment.alive) for start, segment in starts]
            rows = np.concatenate(living) if living else np.empty(0, np.int64)
        for begin in range(0, len(rows), batch_size):
            part = rows[begin : begin + batch_size]
            # One run of documents of a segment after the other, in whatever order they come.
            owners = np.searchsorted(state.starts, part, side="right")
            runs = np.split(part, np.flatnonzero(np.diff(owners)) + 1)
            yield Batch.concatenate(
                [
                    columns.chosen(segment, local, kept)
                    for run in runs
                    for segment, local, _ in state.by_segment(run)
                ]
            )


def _counted(segment: Segment, codec: Codec) -> Background:
    living = np.flatnonzero(segment.alive)
    background: Background | None = None
    for begin in range(0, len(living), _COUNTED_AT_ONCE):
        part = living[begin : begin + _COUNTED_AT_ONCE]
        matrices = codec.matrix_sum(segment, part)
        background = (background or Background.empty(len(matrices))).plus(matrices, len(part))
    assert background is not None  # a segment without living documents is dropped
    return background


def _located(state: Snapshot, ids: list[DocumentId]) -> NDArray[np.int64]:
    rows = state.locate(ids)
    if (rows < 0).any():
        raise UnknownDocumentError(f"no document {ids[int(np.argmin(rows))]!r} in the index")
    return rows


def _allowed_rows(state: Snapshot, subset: Subset, n_queries: int) -> Allowed:
    """Translate a subset to sorted global rows per query."""
    if subset is None:
        return None
    located: dict[int, NDArray[np.int64]] = {}
    groups = subset_per_query(subset, n_queries)
    for ids in groups:
        if id(ids) not in located:
            rows = state.locate(ids)
            located[id(ids)] = np.unique(rows[rows >= 0])
    return [located[id(ids)] for ids in groups]
