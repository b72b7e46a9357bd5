"""Methods that keep some vectors per document and score all of them by MaxSim."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numkong
import numpy as np
from numpy.typing import NDArray

from ...scores.maxsim import maxsim_scores
from ...spectral.kernels.threads import for_ranges
from ...tokens import TokenBatch
from ...vectors.ranking import top_k
from ..baselines import pool_kmeans, pool_ward
from ..embeddings import StoredTokens
from .base import Candidates, Family, Hits, Method

_NO_HITS = Hits(np.zeros(0, np.int64), np.zeros(0, np.float32))

_DOCUMENTS_AT_ONCE = 256  # their products with a query stay in the cache

Encode = Callable[[TokenBatch], TokenBatch]


class Scanned(Method):
    """Documents are some vectors each, kept as float16; MaxSim scores every document.

    ``documents`` makes these vectors of token vectors; by default tokens are used as they are.
    """

    def __init__(self, folder: str | Path, documents: Encode | None = None) -> None:
        self._stored = StoredTokens(folder)
        self._documents = documents

    def __len__(self) -> int:
        return len(self._stored)

    def add(self, documents: TokenBatch) -> None:
        self._stored.append(self._documents(documents) if self._documents else documents)

    def search(self, queries: TokenBatch, k: int, candidates: Candidates = None) -> list[Hits]:
        """Return the best k documents per query; of equal scores the earlier document wins."""
        chosen = None if candidates is None else [np.unique(rows) for rows in candidates]
        hits = [_NO_HITS] * len(queries)
        for begin, part in self._stored:
            scores = maxsim_scores(queries, part)
            for i, values in enumerate(scores):
                local = np.arange(len(part))
                if chosen is not None:
                    bounds = np.searchsorted(chosen[i], [begin, begin + len(part)])
                    local = chosen[i][slice(*bounds)] - begin
                rows = np.concatenate([hits[i].rows, local + begin])
                found = np.concatenate([hits[i].scores, values[local]])
                best = top_k(found, k)
                hits[i] = Hits(rows[best], found[best])
        return hits

    @property
    def nbytes(self) -> int:
        return self._stored.nbytes


class NumKongMaxSim(Method):
    """MaxSim over all tokens by NumKong's products of float16, in memory.

    NumKong's own MaxSim chooses tokens by 8-bit integers and misses the best ones of real models.
    """

    def __init__(self, folder: str | Path) -> None:
        self._parts: list[tuple[NDArray[np.float16], NDArray[np.int64]]] = []

    def __len__(self) -> int:
        return sum(len(offsets) - 1 for _, offsets in self._parts)

    def add(self, documents: TokenBatch) -> None:
        for begin in range(0, len(documents), _DOCUMENTS_AT_ONCE):
            part = documents.chosen(range(begin, min(begin + _DOCUMENTS_AT_ONCE, len(documents))))
            self._parts.append((part.tokens.half().numpy(), part.offsets))

    def search(self, queries: TokenBatch, k: int, candidates: Candidates = None) -> list[Hits]:
        """Return the best k documents per query; of equal scores the earlier document wins."""
        if candidates is not None:
            raise ValueError("numkong scores all documents: it cannot rerank candidates")
        starts = np.cumsum([0, *(len(offsets) - 1 for _, offsets in self._parts)])
        hits = []
        for query in queries:
            packed = numkong.dots_pack(query.half().numpy())
            scores = np.empty(len(self), np.float32)

            def task(chosen: slice, packed: Any = packed, scores: Any = scores) -> None:
                for i in range(chosen.start, chosen.stop):
                    tokens, offsets = self._parts[i]
                    products = np.asarray(numkong.dots_packed(tokens, packed))
                    best = np.maximum.reduceat(products, offsets[:-1], axis=0)
                    scores[starts[i] : starts[i + 1]] = best.sum(axis=1)

            for_ranges(task, len(self._parts), 1)
            best = top_k(scores, k)
            hits.append(Hits(best, scores[best]))
        return hits

    @property
    def nbytes(self) -> int:
        return sum(tokens.nbytes + offsets.nbytes for tokens, offsets in self._parts)


def _ward(folder: Path, k: int) -> Scanned:
    return Scanned(folder, partial(pool_ward, k=k))


def _kmeans(folder: Path, k: int, seed: int = 0) -> Scanned:
    return Scanned(folder, partial(pool_kmeans, k=k, seed=seed))


FAMILIES = (
    Family("full", Scanned, is_maxsim=True),
    Family("numkong", NumKongMaxSim, is_maxsim=True),
    Family("ward", _ward, budgeted=True, is_maxsim=True),
    Family("kmeans", _kmeans, budgeted=True, is_maxsim=True),
)
