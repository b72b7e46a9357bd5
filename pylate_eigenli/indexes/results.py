"""Results of searches: documents by their global rows in files, or by their ids."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..storage import DocumentId
from ..vectors.ranking import top_k


class Hits(NamedTuple):
    """Global rows of the best documents of a query and their scores, best first."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]

    @classmethod
    def best(cls, rows: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> Hits:
        """Return the best k of ascending rows; of equal scores the lower row."""
        chosen = top_k(scores, k)
        return cls(rows[chosen], scores[chosen])


class Found(NamedTuple):
    """Ids of the best documents of a query and their scores, best first."""

    ids: list[DocumentId]
    scores: NDArray[np.float32]

    @classmethod
    def nothing(cls) -> Found:
        """Return an empty result."""
        return cls([], np.empty(0, np.float32))

    @classmethod
    def best(cls, ids: list[DocumentId], scores: NDArray[np.float32], k: int) -> Found:
        """Return the best k of documents; of equal scores the one that comes first."""
        chosen = top_k(scores, k)
        return cls([ids[i] for i in chosen], scores[chosen])
