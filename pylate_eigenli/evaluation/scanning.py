"""Search by scoring everything: a corpus in parts, as a method encodes them, one after the other.

No more than one part has to be in memory at a time, and results do not depend on the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..indexes.exact_search import Hits
from ..tokens import TokenBatch
from ..vectors.ranking import top_k
from .methods import Documents, Method, Queries, RelativeMethod


class Parts(Protocol):
    """Encoded documents by key: a ``dict``, or :class:`.stored_parts.StoredParts` on disk."""

    def __contains__(self, key: object, /) -> bool: ...
    def __getitem__(self, key: str, /) -> Any: ...
    def __setitem__(self, key: str, documents: Any, /) -> None: ...


class Scan:
    """A corpus that is kept as a method encodes it.

    Parameters
    ----------
    method
        See :func:`pylate_eigenli.evaluation.methods.method`.
    parts
        Where the encoded documents are kept. What it holds already is not encoded again.

    Examples
    --------
    >>> from pylate_eigenli.evaluation.methods import method
    >>> from pylate_eigenli.tokens import collect
    >>> scan = Scan(method("full"), {})
    >>> scan.append("part 1", lambda: collect([[[1.0, 0.0]], [[0.6, 0.8]]]))
    >>> scan.append("part 2", lambda: collect([[[0.0, 1.0]]]))
    >>> [hits] = scan.search(collect([[[0.0, 1.0]]], names="query"), k=2)
    >>> hits.rows, hits.scores.round(1)
    (array([2, 1]), array([1. , 0.8], dtype=float32))
    """

    def __init__(self, method: Method[Any, Any], parts: Parts) -> None:
        self.method = method
        self._parts = parts
        self._keys: list[str] = []

    def append(self, key: str, tokens: Callable[[], TokenBatch]) -> None:
        """Add documents; their tokens are only asked for if ``key`` is not kept yet."""
        if key not in self._parts:
            self._parts[key] = self.method.encode_documents(tokens())
        self._keys.append(key)

    def search(
        self,
        queries: TokenBatch,
        k: int,
        candidates: Sequence[NDArray[np.int64]] | None = None,
    ) -> list[Hits]:
        """Return the best k documents of each query, numbered as they were added.

        Parameters
        ----------
        queries
            Token vectors.
        k
            Number of documents wanted per query.
        candidates
            For each query the rows of the documents to choose from, by default all.
        """
        method = self.method
        if isinstance(method, RelativeMethod) and method.is_relative:
            method = method.among(self._parts[key] for key in self._keys)
        encoded = method.encode_queries(queries)
        parts = (self._parts[key] for key in self._keys)
        if candidates is None:
            return best(method, encoded, parts, k)
        scores = candidate_scores(method, encoded, parts, candidates)
        return [
            _merge(NO_HITS, rows, values, k)
            for rows, values in zip(candidates, scores, strict=True)
        ]


NO_HITS = Hits(np.zeros(0, np.int64), np.zeros(0, np.float32))


def best(
    method: Method[Queries, Documents], queries: Queries, parts: Iterable[Documents], k: int
) -> list[Hits]:
    """Return the best k documents of each query, numbered through all parts.

    Of equal scores the earlier document wins.
    """
    hits: list[Hits] = []
    begin = 0
    for part in parts:
        scores = method.scores(queries, part)
        rows = np.arange(begin, begin + scores.shape[1])
        hits = [
            _merge(before, rows, values, k)
            for before, values in zip(hits or [NO_HITS] * len(scores), scores, strict=True)
        ]
        begin += len(rows)
    return hits


def candidate_scores(
    method: Method[Queries, Documents],
    queries: Queries,
    parts: Iterable[Documents],
    candidates: Sequence[NDArray[np.int64]],
) -> list[NDArray[np.float32]]:
    """Return for each query the scores of its candidates. Shape: (n_i,) each."""
    lengths = [len(rows) for rows in candidates]
    owners = np.repeat(np.arange(len(candidates)), lengths)
    rows = np.concatenate([*candidates, np.zeros(0, np.int64)]).astype(np.int64)
    order = np.argsort(rows, kind="stable")
    result = np.empty(len(rows), np.float32)
    begin = 0
    for part in parts:
        scores = method.scores(queries, part)
        end = begin + scores.shape[1]
        here = order[slice(*np.searchsorted(rows, [begin, end], sorter=order))]
        result[here] = scores[owners[here], rows[here] - begin]
        begin = end
    return np.split(result, np.cumsum(lengths)[:-1])


def _merge(before: Hits, rows: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> Hits:
    rows, scores = np.concatenate([before.rows, rows]), np.concatenate([before.scores, scores])
    chosen = top_k(scores, k)
    return Hits(rows[chosen], scores[chosen])
