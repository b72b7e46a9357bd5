"""Search among single vectors: candidates of an ANN structure, and a scan of the other documents.

A scan compares codes with rounded queries. Documents that may be among the best, given the margin of
such scores, are then scored with the queries themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from ..storage import Snapshot
from ..vectors.quantization import Approximation, StoredVectors
from ..vectors.ranking import finalists
from .ann.accelerator import Accelerator
from .codecs import VectorCodec
from .collection import Collection
from .documents import Allowed, SearchRequest
from .results import Hits
from .settings import SVSettings

_SCORES_BYTES = 64 << 20
_GATHERED_BYTES = 8 << 20  # of floats; copies of codes stay in the cache until they are scored
_FEW = 2  # times the documents wanted are scored at once: a first look would not save much


class VectorSearch:
    """Finds the documents of a state with the highest scores."""

    def __init__(
        self, collection: Collection[SVSettings, VectorCodec], accelerator: Accelerator
    ) -> None:
        self._collection = collection
        self._accelerator = accelerator

    def clear(self) -> None:
        """Free the ANN structure."""
        self._accelerator.clear()

    def search(
        self, state: Snapshot, request: SearchRequest, allowed: Allowed = None
    ) -> Iterator[Hits]:
        """Yield the hits of every query; a subset is always scanned."""
        n_queries = len(request.queries)
        if not state.segments:
            yield from [Hits(np.empty(0, np.int64), np.empty(0, np.float32))] * n_queries
            return
        codec = self._collection.codec(state)
        encoded = codec.encoder.encode_queries(request.queries)
        vectors = torch.from_numpy(encoded.vectors)
        if allowed is None:
            candidates = self._candidates(state, codec, vectors, request)
        else:
            candidates = ((rows, vectors[i : i + 1]) for i, rows in enumerate(allowed))
        for i, (rows, vector) in enumerate(candidates):
            rows, scores = _scored(state, codec, rows, vector, request.depth)
            hits = Hits.best(rows, scores + encoded.constants[i], request.depth)
            yield _reranked(state, hits, i, request)

    def _candidates(
        self, state: Snapshot, codec: VectorCodec, vectors: torch.Tensor, request: SearchRequest
    ) -> Iterator[tuple[NDArray[np.int64], torch.Tensor]]:
        """Yield ascending rows and the query: those of the ANN structure, and the best after them."""
        scanned_from, found = 0, [np.empty(0, np.int64)] * len(vectors)
        if not request.exact:
            wanted = max(request.depth, request.n_candidates)
            scanned_from, found = self._accelerator.candidates(
                state, codec.settings, vectors, wanted
            )
        at_once = int(np.clip(_SCORES_BYTES // (4 * max(int(state.starts[-1]), 1)), 1, 128))
        for begin in range(0, len(vectors), at_once):
            part = vectors[begin : begin + at_once]
            scanned = zip(*_scan(state, codec, scanned_from, part), strict=True)
            for i, (scores, margin) in enumerate(scanned, begin):
                best = finalists(scores, margin, request.depth) + scanned_from
                # All that the ANN structure covers are before what was scanned.
                yield np.concatenate([found[i], best]), vectors[i : i + 1]


def _scan(state: Snapshot, codec: VectorCodec, begin: int, vectors: torch.Tensor) -> Approximation:
    """Return approximate scores of all global rows from ``begin`` on, -inf for the dead."""
    margins = np.zeros(len(vectors))
    scores = np.full((len(vectors), int(state.starts[-1]) - begin), -np.inf, np.float32)
    for start, segment in zip(state.starts.tolist(), state.segments, strict=False):
        first = max(begin - start, 0)
        if first >= segment.n_documents:
            continue
        target = scores[:, start + first - begin : start + segment.n_documents - begin]
        stored = codec.stored((segment, slice(first, None)))
        target[:], off = codec.approximate_scores(stored, vectors)
        target[:, ~segment.alive[first:]] = -np.inf
        margins = np.maximum(margins, off)
    return Approximation(scores, margins)


def _scored(
    state: Snapshot, codec: VectorCodec, rows: NDArray[np.int64], vector: torch.Tensor, n: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return those of ascending global rows that hold the best n, and their scores.

    ``vector`` (1, D) is that of the query.
    """
    if len(rows) > _FEW * n:
        scores, margin = np.empty(len(rows), np.float32), 0.0
        for part, stored in _gathered(state, codec, rows):
            (scores[part],), (off,) = codec.approximate_scores(stored, vector)
            margin = max(margin, float(off))
        rows = rows[finalists(scores, margin, n)]
    scores = np.empty(len(rows), np.float32)
    for part, stored in _gathered(state, codec, rows):
        scores[part] = codec.scores(stored, vector)[0]
    return rows, scores


def _gathered(
    state: Snapshot, codec: VectorCodec, rows: NDArray[np.int64]
) -> Iterator[tuple[slice, StoredVectors]]:
    """Yield the vectors of ascending global rows, many at once, wherever they are stored."""
    step = max(1, _GATHERED_BYTES // (4 * codec.encoder.width))
    for begin in range(0, len(rows), step):
        part = slice(begin, begin + step)
        owned = state.by_segment(rows[part])
        yield part, codec.stored(*((segment, local) for segment, local, _ in owned))


def _reranked(state: Snapshot, hits: Hits, query: int, request: SearchRequest) -> Hits:
    if request.reranker is None:
        return hits
    rows = np.sort(hits.rows)  # so that equal scores fall back to the order of insertion
    scores = np.empty(len(rows), np.float32)
    for segment, local, positions in state.by_segment(rows):
        scores[positions] = request.reranker.scores(query, segment, local)
    return Hits.best(rows, scores, request.k)
