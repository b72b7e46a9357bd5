"""Search among single vectors: candidates of an ANN structure, and a scan of all it does not cover."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from ..storage import Snapshot
from .ann.accelerator import Accelerator
from .codecs import VectorCodec
from .collection import Collection
from .documents import Allowed, SearchRequest
from .results import Hits
from .settings import SVSettings

_SCORES_BYTES = 64 << 20


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
        """Yield the hits of every query. Documents that it may choose from are always scanned."""
        n_queries = len(request.queries)
        if not state.segments:
            yield from [Hits(np.empty(0, np.int64), np.empty(0, np.float32))] * n_queries
            return
        codec = self._collection.codec(state)
        encoded = codec.encoder.encode_queries(request.queries)
        vectors = torch.from_numpy(encoded.vectors)
        free = [i for i in range(n_queries) if allowed is None or allowed[i] is None]
        scanned_from, candidates = 0, [np.empty(0, np.int64)] * len(free)
        if not request.exact:
            wanted = max(request.depth, request.n_candidates)
            scanned_from, candidates = self._accelerator.candidates(
                state, codec.settings, vectors[free], wanted
            )
        found = dict(zip(free, candidates, strict=True))
        at_once = int(np.clip(_SCORES_BYTES // (4 * max(int(state.starts[-1]), 1)), 1, 128))
        for begin in range(0, n_queries, at_once):
            chunk = range(begin, min(begin + at_once, n_queries))
            scanned = [i for i in chunk if i in found]
            scans = dict(
                zip(scanned, _scan(state, codec, scanned_from, vectors[scanned]), strict=True)
            )
            for i in chunk:
                vector = vectors[i : i + 1]
                if i in scans:
                    rows = np.flatnonzero(scans[i] > -np.inf) + scanned_from
                    scores = scans[i][rows - scanned_from]
                    if len(found[i]):
                        # All of them are before what was scanned.
                        covered = np.sort(found[i])
                        rows = np.concatenate([covered, rows])
                        scores = np.concatenate([_scored(state, codec, covered, vector), scores])
                else:
                    assert allowed is not None
                    rows = allowed[i]  # type: ignore[assignment]
                    scores = _scored(state, codec, rows, vector)
                hits = Hits.best(rows, scores + encoded.constants[i], request.depth)
                yield _reranked(state, hits, i, request)


def _scan(
    state: Snapshot, codec: VectorCodec, begin: int, vectors: torch.Tensor
) -> NDArray[np.float32]:
    """Return the scores of all global rows from ``begin`` on, -inf for the dead."""
    scores = np.full((len(vectors), int(state.starts[-1]) - begin), -np.inf, np.float32)
    if not len(vectors):
        return scores
    for start, segment in zip(state.starts.tolist(), state.segments, strict=False):
        first = max(begin - start, 0)
        if first >= segment.n_documents:
            continue
        target = scores[:, start + first - begin : start + segment.n_documents - begin]
        target[:] = codec.scores(segment, slice(first, None), vectors)
        target[:, ~segment.alive[first:]] = -np.inf
    return scores


def _scored(
    state: Snapshot, codec: VectorCodec, rows: NDArray[np.int64], vector: torch.Tensor
) -> NDArray[np.float32]:
    """Return the scores of chosen global rows for one query vector (1, D)."""
    scores = np.empty(len(rows), np.float32)
    for segment, local, positions in state.by_segment(rows):
        scores[positions] = codec.scores(segment, local, vector)[0]
    return scores


def _reranked(state: Snapshot, hits: Hits, query: int, request: SearchRequest) -> Hits:
    if request.reranker is None:
        return hits
    rows = np.sort(hits.rows)  # so that equal scores fall back to the order of insertion
    scores = np.empty(len(rows), np.float32)
    for segment, local, positions in state.by_segment(rows):
        scores[positions] = request.reranker.scores(query, segment, local)
    return Hits.best(rows, scores, request.k)
