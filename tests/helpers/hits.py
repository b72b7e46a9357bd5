"""Results of searches, compared by their ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Results = Iterable[Sequence[dict[str, Any]]]


def ids(results: Results) -> list[list[str | int]]:
    """The ids of the hits of each query."""
    return [[hit["id"] for hit in hits] for hits in results]


def overlap(found: Results, expected: Results) -> float:
    """The share of the expected hits that were found, on average."""
    pairs = zip(ids(found), ids(expected), strict=True)
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in pairs]))
