"""Methods that keep some vectors per document and score all of them by MaxSim."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from ...scores.maxsim import maxsim_scores
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


def _ward(folder: Path, k: int) -> Scanned:
    return Scanned(folder, partial(pool_ward, k=k))


def _kmeans(folder: Path, k: int, seed: int = 0) -> Scanned:
    return Scanned(folder, partial(pool_kmeans, k=k, seed=seed))


FAMILIES = (
    Family("full", Scanned, is_maxsim=True),
    Family("ward", _ward, budgeted=True, is_maxsim=True),
    Family("kmeans", _kmeans, budgeted=True, is_maxsim=True),
)
