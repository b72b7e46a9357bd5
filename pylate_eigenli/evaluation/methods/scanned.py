"""Methods that keep some vectors per document and score all of them by MaxSim."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numkong
import numpy as np
from torch import Tensor

from ...scores.maxsim import maxsim_scores
from ...spectral.kernels.threads import for_ranges
from ...tokens import TokenBatch
from ...vectors.ranking import top_k
from ..baselines import pool_kmeans, pool_ward
from ..embeddings import StoredTokens
from .base import Candidates, Family, Hits, Method

_NO_HITS = Hits(np.zeros(0, np.int64), np.zeros(0, np.float32))

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


class PackedTokens(Method):
    """MaxSim over all tokens by NumKong, which keeps them packed in memory.

    It chooses the best token of a document by 8-bit integers, so scores are a little too low.
    """

    def __init__(self, folder: str | Path) -> None:
        self._packed: list[Any] = []

    def __len__(self) -> int:
        return len(self._packed)

    def add(self, documents: TokenBatch) -> None:
        self._packed += map(_packed, documents)

    def search(self, queries: TokenBatch, k: int, candidates: Candidates = None) -> list[Hits]:
        """Return the best k documents per query; of equal scores the earlier document wins."""
        if candidates is not None:
            raise ValueError("numkong scores all documents: it cannot rerank candidates")
        hits = []
        for query in map(_packed, queries):
            scores = np.empty(len(self), np.float32)

            def task(part: slice, query: Any = query, scores: Any = scores) -> None:
                for i in range(part.start, part.stop):
                    scores[i] = query.vector_count - numkong.maxsim_packed(query, self._packed[i])

            for_ranges(task, len(self), 1024)
            best = top_k(scores, k)
            hits.append(Hits(best, scores[best]))
        return hits

    @property
    def nbytes(self) -> int:
        return sum(tokens.nbytes for tokens in self._packed)


def _packed(tokens: Tensor) -> Any:
    return numkong.maxsim_pack(tokens.half().numpy())


def _ward(folder: Path, k: int) -> Scanned:
    return Scanned(folder, partial(pool_ward, k=k))


def _kmeans(folder: Path, k: int, seed: int = 0) -> Scanned:
    return Scanned(folder, partial(pool_kmeans, k=k, seed=seed))


FAMILIES = (
    Family("full", Scanned, is_maxsim=True),
    Family("numkong", PackedTokens, is_maxsim=True),
    Family("ward", _ward, budgeted=True, is_maxsim=True),
    Family("kmeans", _kmeans, budgeted=True, is_maxsim=True),
)
