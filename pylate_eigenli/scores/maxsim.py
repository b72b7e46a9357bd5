"""Exact MaxSim: sum over query tokens of the largest inner product with a document's tokens.

One matrix product covers a block of query tokens and a block of document tokens; the maxima are
then taken per document. There is no padding, and memory is bounded by the scores and one block.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..tokens import TokenBatch

# A block of products takes 8 MB, so it is still in the cache when its maxima are taken.
_QUERY_TOKENS = 1024
_DOCUMENT_TOKENS = 2048


def maxsim_scores(queries: TokenBatch, documents: TokenBatch) -> NDArray[np.float32]:
    """Score every query against every document. Shape: (queries, documents), float32.

    Tokens of both in bfloat16 are multiplied as they are, which is several times as fast where the
    processor can do it, and rounds every product to 8 bits.

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
        q = _factor(query_tokens[int(bounds[0]) : int(bounds[-1])])
        query_starts = bounds[:-1] - bounds[0]
        for begin, end in row_ranges(documents.offsets, _DOCUMENT_TOKENS):
            bounds = documents.offsets[begin : end + 1]
            d = _factor(document_tokens[int(bounds[0]) : int(bounds[-1])])
            products = (q @ d.mT).float().numpy()
            best = np.maximum.reduceat(products, bounds[:-1] - bounds[0], axis=1)
            np.add.reduceat(best, query_starts, axis=0, out=scores[first:last, begin:end])
    return scores


def _factor(tokens: Tensor) -> Tensor:
    return tokens if tokens.dtype == torch.bfloat16 else tokens.float()


def row_ranges(offsets: NDArray[np.int64], rows: int) -> Iterator[tuple[int, int]]:
    """Divide items into consecutive ranges of at most ``rows`` rows and at least one item.

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
