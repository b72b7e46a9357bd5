"""Ragged columns: every document owns a run of consecutive rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[Any]


def offsets_of(lengths: ArrayLike) -> NDArray[np.int64]:
    """Return the offsets of runs: the start of each run, and the end of the last.

    Examples
    --------
    >>> offsets_of([2, 0, 3])
    array([0, 2, 2, 5])
    """
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


@dataclass(frozen=True, eq=False)
class Ragged:
    """Columns with common offsets.

    Attributes
    ----------
    columns
        Arrays by name, each of shape ``(n_rows, ...)``.
    offsets
        int64 of shape ``(n_documents + 1,)``: document ``i`` owns the rows
        ``offsets[i]:offsets[i + 1]`` of every column, and ``offsets[0]`` is 0.
    """

    columns: Mapping[str, Array]
    offsets: NDArray[np.int64]

    @classmethod
    def concatenate(cls, parts: Sequence[Ragged]) -> Ragged:
        """Return the documents of all parts, as a copy."""
        columns = {
            name: np.concatenate([part.columns[name] for part in parts])
            for name in parts[0].columns
        }
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(columns, offsets_of(lengths))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of rows of each document, int64 of shape ``(n_documents,)``."""
        return np.diff(self.offsets)

    def span(self, start: int, stop: int) -> Ragged:
        """Return the documents ``start:stop``, without copying their rows."""
        first, last = int(self.offsets[start]), int(self.offsets[stop])
        columns = {name: column[first:last] for name, column in self.columns.items()}
        return Ragged(columns, self.offsets[start : stop + 1] - first)

    def take(self, keep: NDArray[np.bool_]) -> Ragged:
        """Return the documents where the mask ``keep``, of shape ``(n_documents,)``, is true."""
        kept_rows = np.repeat(keep, self.lengths)
        columns = {name: column[kept_rows] for name, column in self.columns.items()}
        return Ragged(columns, offsets_of(self.lengths[keep]))
