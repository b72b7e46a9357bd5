"""Exact MaxSim: sum over query tokens of the largest inner product with a document's tokens.

All tokens of a block of documents are multiplied with those of the queries at once; the maxima are
then taken per document, over runs of different lengths. Nothing is padded, and memory is bounded by
one block of products besides the scores themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ..spectral.subspace import check_k
from ..tokens import TokenBatch
from ..vectors.ranking import top_k

# Products of this many query tokens with this many document tokens are 8 MB: few enough to still
# be in a processor's cache when their maxima are taken.
_QUERY_TOKENS = 1024
_DOCUMENT_TOKENS = 2048
_SCORES_BYTES = 64 << 20


def maxsim_scores(queries: TokenBatch, documents: TokenBatch) -> NDArray[np.float32]:
    """Score every query against every document.

    Parameters
    ----------
    queries, documents
        Token vectors, as :func:`pylate_eigenli.tokens.collect` returns them.

    Returns
    -------
    Shape: (queries, documents), float32.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> queries = collect([[[1.0, 0.0], [0.6, 0.8]]], names="query")
    >>> documents = collect([[[1.0, 0.0]], [[0.8, 0.6], [0.0, 1.0]]])
    >>> maxsim_scores(queries, documents).round(2)
    array([[1.6 , 1.76]], dtype=float32)
    """
    if queries.dim != documents.dim:
        raise ValueError(
            f"queries have dimension {queries.dim}, but documents have dimension {documents.dim}"
        )
    query_tokens, document_tokens = queries.tokens.cpu(), documents.tokens.cpu()
    scores = np.empty((len(queries), len(documents)), np.float32)
    for first, last in row_ranges(queries.offsets, _QUERY_TOKENS):
        bounds = queries.offsets[first : last + 1]
        q = query_tokens[int(bounds[0]) : int(bounds[-1])].float()
        query_starts = bounds[:-1] - bounds[0]
        for begin, end in row_ranges(documents.offsets, _DOCUMENT_TOKENS):
            bounds = documents.offsets[begin : end + 1]
            d = document_tokens[int(bounds[0]) : int(bounds[-1])].float()
            best = np.maximum.reduceat((q @ d.mT).numpy(), bounds[:-1] - bounds[0], axis=1)
            np.add.reduceat(best, query_starts, axis=0, out=scores[first:last, begin:end])
    return scores


def maxsim_candidates(
    queries: TokenBatch, documents: TokenBatch, candidates: Sequence[NDArray[np.int64]]
) -> list[NDArray[np.float32]]:
    """Score each query against its own candidates, as re-ranking does.

    Parameters
    ----------
    queries, documents
        Token vectors, as :func:`pylate_eigenli.tokens.collect` returns them.
    candidates
        For each query the positions of its candidates among the documents. Shape: (n_i,) each.

    Returns
    -------
    For each query the scores of its candidates, in their order. Shape: (n_i,) each, float32.
    """
    if len(queries) != len(candidates):
        raise ValueError(f"{len(queries)} queries, but {len(candidates)} lists of candidates")
    return [
        maxsim_scores(_slice(queries, i, i + 1), _take(documents, np.asarray(rows)))[0]
        if len(rows)
        else np.zeros(0, np.float32)
        for i, rows in enumerate(candidates)
    ]


def maxsim_top_k(
    queries: TokenBatch, documents: TokenBatch, k: int
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Find the documents with the highest scores for each query.

    Parameters
    ----------
    queries, documents
        Token vectors, as :func:`pylate_eigenli.tokens.collect` returns them.
    k
        Number of documents wanted per query.

    Returns
    -------
    For each query the positions of its best min(k, documents) documents and their scores, best
    first; of equal scores the earlier document wins.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> queries = collect([[[1.0, 0.0], [0.6, 0.8]]], names="query")
    >>> documents = collect([[[1.0, 0.0]], [[0.8, 0.6], [0.0, 1.0]], [[1.0, 0.0]]])
    >>> [(rows, scores)] = maxsim_top_k(queries, documents, k=2)
    >>> rows, scores.round(2)
    (array([1, 0]), array([1.76, 1.6 ], dtype=float32))
    """
    check_k(k, None)
    at_once = max(1, _SCORES_BYTES // (4 * len(documents)))
    hits = []
    for begin in range(0, len(queries), at_once):
        part = _slice(queries, begin, min(begin + at_once, len(queries)))
        for scores in maxsim_scores(part, documents):
            rows = top_k(scores, k)
            hits.append((rows, scores[rows]))
    return hits


def row_ranges(offsets: NDArray[np.int64], rows: int) -> Iterator[tuple[int, int]]:
    """Cut items into consecutive ranges of at most ``rows`` rows, but at least one item.

    Examples
    --------
    >>> list(row_ranges(np.array([0, 3, 5, 9, 19, 20]), 6))
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    begin, n = 0, len(offsets) - 1
    while begin < n:
        fitting = int(np.searchsorted(offsets, offsets[begin] + rows, side="right")) - 1
        end = max(fitting, begin + 1)
        yield begin, end
        begin = end


def _slice(batch: TokenBatch, begin: int, end: int) -> TokenBatch:
    offsets = batch.offsets[begin : end + 1]
    return TokenBatch(batch.tokens[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0])


def _take(batch: TokenBatch, items: NDArray[np.int64]) -> TokenBatch:
    """Return chosen items, in their order."""
    offsets = np.concatenate([[0], np.cumsum(batch.lengths[items])])
    # Row numbers of all items in one go: count up, restarting at each item's first row.
    jumps = np.repeat(batch.offsets[items] - offsets[:-1], batch.lengths[items])
    rows = torch.from_numpy(np.arange(offsets[-1]) + jumps).to(batch.tokens.device)
    return TokenBatch(batch.tokens[rows], offsets)
