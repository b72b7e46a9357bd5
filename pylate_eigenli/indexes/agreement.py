"""How well codes keep the scores of their vectors, measured while both are in memory.

Runs of tokens of some documents serve as queries. The document that a run is from would be found
with any code, and does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..tokens import TokenBatch, offsets_of

FEWEST_DOCUMENTS = 20
"""A ranking of fewer says nothing."""
ENOUGH = 0.9
"""Codes of a lower agreement find other documents than their vectors."""
DOCUMENTS = 1024
"""Documents to measure, at most."""
_QUERIES, _TOKENS = 32, 32


def spread(n: int, wanted: int) -> NDArray[np.int64]:
    """Return the positions of at most ``wanted`` of n items, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, wanted)).astype(np.int64))


def pseudo_queries(
    tokens: TokenBatch, queries: int = _QUERIES, lengths: Sequence[int] = (_TOKENS,)
) -> tuple[TokenBatch, NDArray[np.int64]]:
    """Return runs of tokens from the middles of some documents, and the documents' positions.

    Runs have the given lengths in turn; a shorter document gives all of its tokens.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> queries, owners = pseudo_queries(collect([[[1.0, 0.0]], [[0.0, 1.0]]]))
    >>> len(queries), owners
    (2, array([0, 1]))
    """
    owners = spread(len(tokens), queries)
    begin, end = tokens.offsets[owners], tokens.offsets[owners + 1]
    wanted = np.resize(lengths, len(owners))
    first = np.maximum((begin + end - wanted) // 2, begin)
    last = np.minimum(first + wanted, end)
    runs = [tokens.tokens[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    return TokenBatch(torch.cat(runs).cpu(), offsets_of(last - first)), owners


def agreement(exact: Tensor, coded: Tensor, owners: NDArray[np.int64]) -> float:
    """Return the mean correlation of exact and coded scores (queries, documents), over queries.

    ``owners`` (queries,) are the documents that do not count.

    Examples
    --------
    >>> scores = torch.tensor([[9.0, 1.0, 2.0, 3.0]])
    >>> agreement(scores, torch.tensor([[0.0, 10.0, 20.0, 30.0]]), np.array([0]))
    1.0
    """
    others = torch.ones_like(exact, dtype=torch.bool)
    others[torch.arange(len(owners)), torch.from_numpy(owners)] = False
    shape = (len(exact), exact.shape[1] - 1)
    ours, theirs = (scores[others].reshape(shape).double() for scores in (exact, coded))
    ours, theirs = (x - x.mean(1, keepdim=True) for x in (ours, theirs))
    lengths = ours.norm(dim=1) * theirs.norm(dim=1)
    # Documents that all score alike are in no order that a code could break.
    alike = ours.abs().amax(1) <= 1e-5 * exact.abs().amax(1).double()
    correlations = (ours * theirs).sum(1) / lengths.clamp_min(1e-300)
    return round(float(correlations.where(~alike, 1.0).mean()), 4)
