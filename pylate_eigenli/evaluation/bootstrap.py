"""Confidence intervals for the difference between two methods, by the paired bootstrap.

Queries are resampled with replacement many times, the same ones for both methods. The interval
excludes the lowest and the highest 2.5 % of the differences. ``scipy.stats.bootstrap`` handles one
collection, but not the mean over several collections that are resampled separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

_LEVELS = (2.5, 97.5)  # percent
_DRAWN_AT_ONCE = 1 << 22  # 32 MB of query numbers


class Interval(NamedTuple):
    """A difference and the bounds of its 95 % interval.

    Examples
    --------
    >>> interval = paired_interval([0.5, 0.7, 0.9], [0.4, 0.6, 0.8])
    >>> round(interval.difference, 3), interval.low <= interval.difference <= interval.high
    (0.1, True)
    """

    difference: float
    low: float
    high: float


def paired_interval(a: ArrayLike, b: ArrayLike, n: int = 10_000, seed: int = 0) -> Interval:
    """Return the mean of a minus that of b, with its interval; n resamples are drawn.

    ``a`` and ``b`` are the metric of two methods on the same queries.

    Examples
    --------
    >>> [round(x, 2) for x in paired_interval([0.5, 1.0, 0.8, 0.9], [0.4, 0.9, 0.9, 0.7])]
    [0.08, -0.05, 0.18]
    """
    values, others = _paired(a, b)
    differences = values - others
    return _interval(float(differences.mean()), _resampled_means(differences, n, seed))


def geometric_interval(
    a: Sequence[ArrayLike], b: Sequence[ArrayLike], n: int = 10_000, seed: int = 0
) -> Interval:
    """Return the geometric mean over collections of the ratio of a to b, minus 1, with its interval.

    Every collection is resampled on its own.

    Examples
    --------
    >>> a, b = [[0.5, 1.0], [0.2, 0.6]], [[0.5, 0.8], [0.2, 0.4]]
    >>> round(geometric_interval(a, b).difference, 3)
    0.24
    """
    pairs = [_paired(x, y) for x, y in zip(a, b, strict=True)]
    if not pairs:
        raise ValueError("there is no collection to compare on")
    logs = np.zeros(n)
    for number, (x, y) in enumerate(pairs):
        # A resample may have only zeros; its ratio (0, infinity or NaN) is outside the interval.
        with np.errstate(divide="ignore", invalid="ignore"):
            drawn = (_resampled_means(values, n, seed + number) for values in (x, y))
            logs += np.log(np.divide(*drawn))
    ratio = np.exp(np.mean([np.log(x.mean() / y.mean()) for x, y in pairs]))
    return _interval(float(ratio) - 1, np.exp(logs / len(pairs)) - 1)


def _paired(a: ArrayLike, b: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if x.ndim != 1 or x.shape != y.shape or not len(x):
        raise ValueError(f"expected as many queries of both methods, got {x.shape} and {y.shape}")
    return x, y


def _resampled_means(values: NDArray[np.float64], n: int, seed: int) -> NDArray[np.float64]:
    """Return the means of n resamples; the same seed draws the same queries. Shape: (n,)."""
    generator = np.random.default_rng(seed)
    at_once = max(1, _DRAWN_AT_ONCE // len(values))
    return np.concatenate(
        [
            values[generator.integers(len(values), size=(min(at_once, n - i), len(values)))].mean(1)
            for i in range(0, n, at_once)
        ]
    )


def _interval(difference: float, resampled: NDArray[np.float64]) -> Interval:
    low, high = np.nanpercentile(resampled, _LEVELS)
    return Interval(difference, float(low), float(high))
