"""The best of many scores, with ties broken the same way everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def top_k(scores: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Return the positions of the k highest scores (or all), best first, equal ones in order.

    Examples
    --------
    >>> top_k(np.array([0.5, 0.7, 0.5, 0.9, 0.5]), 4)
    array([3, 1, 0, 2])
    """
    chosen = np.arange(len(scores))
    if k < len(scores):
        bar = np.partition(scores, len(scores) - k)[len(scores) - k]
        # All that equal the k-th stay for now: a partition alone would keep arbitrary ones.
        chosen = np.flatnonzero(scores >= bar)
    order: NDArray[np.int64] = chosen[np.argsort(-scores[chosen], kind="stable")[:k]]
    return order


def finalists(scores: NDArray[np.float32], margin: float, k: int) -> NDArray[np.int64]:
    """Return the ascending positions that may be among the best k, of scores correct to a margin.

    Scores of -inf never are.

    Examples
    --------
    >>> finalists(np.array([0.5, 0.7, 0.4, 0.9]), margin=0.12, k=2)
    array([0, 1, 3])
    """
    bar = -np.inf
    if k < len(scores):
        bar = np.partition(scores, len(scores) - k)[len(scores) - k] - 2 * margin
    return np.flatnonzero((scores >= bar) & (scores > -np.inf))
