"""Reservoir samples are uniform, reproducible and independent of batch boundaries."""

from __future__ import annotations

import numpy as np

from pylate_eigenli.spectral.sampling import Reservoir, sample_items


def test_a_short_stream_is_kept_whole_and_in_order():
    assert sample_items(range(7), 10, seed=3) == list(range(7))


def test_every_item_is_equally_likely():
    counts = np.zeros(20)
    for seed in range(2000):
        counts[sample_items(range(20), 5, seed)] += 1
    # The standard deviation of each count is sqrt(2000 * 0.25 * 0.75), about 19.
    assert np.abs(counts - 500).max() < 90


def test_batches_do_not_change_the_sample():
    at_once = Reservoir(4, seed=1).slots(50)
    reservoir = Reservoir(4, seed=1)
    in_parts = np.concatenate([reservoir.slots(n) for n in (3, 0, 10, 37)])
    np.testing.assert_array_equal(in_parts, at_once)


def test_the_seed_decides():
    assert sample_items(range(100), 5, seed=1) == sample_items(range(100), 5, seed=1)
    assert sample_items(range(100), 5, seed=1) != sample_items(range(100), 5, seed=2)
