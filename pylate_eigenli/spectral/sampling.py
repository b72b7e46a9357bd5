"""Reservoir sampling: a uniform sample of a stream of unknown length, read once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Reservoir:
    """Assigns the items of a stream to the slots of a sample of fixed size.

    The sample does not depend on how the stream is divided into batches.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._random = np.random.default_rng(seed)
        self._seen = 0

    def slots(self, n: int) -> NDArray[np.int64]:
        """Return the slot of each of the next n items; an item with a slot >= size is dropped.

        A later item replaces an earlier one in the same slot. Shape: (n,).
        """
        slots = np.arange(self._seen, self._seen + n)
        # Item i enters a full sample with probability size / (i + 1), in any slot.
        late = slots >= self._size
        slots[late] = self._random.random(int(late.sum())) * (slots[late] + 1)
        self._seen += n
        return slots


def sample_items(items: Iterable[T], size: int, seed: int) -> list[T]:
    """Return a uniform sample of at most ``size`` items."""
    reservoir = Reservoir(size, seed)
    sample: list[T] = []
    for item in items:
        (slot,) = reservoir.slots(1).tolist()
        if slot == len(sample) < size:
            sample.append(item)
        elif slot < size:
            sample[slot] = item
    return sample
