"""Intervals are those of the bootstrap, and the same every time."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pylate_eigenli.evaluation.bootstrap import geometric_interval, paired_interval


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    a = rng.random(200)
    return a, np.clip(a + rng.normal(0.02, 0.1, 200), 0.01, 1)


def test_the_interval_is_the_percentile_bootstrap_of_the_mean_difference(pair):
    a, b = pair
    found = paired_interval(a, b)
    expected = stats.bootstrap((a - b,), np.mean, method="percentile", rng=1).confidence_interval
    assert found.difference == pytest.approx((a - b).mean())
    assert found.low == pytest.approx(expected.low, abs=5e-4)
    assert found.high == pytest.approx(expected.high, abs=5e-4)
    assert paired_interval(a, b) == found != paired_interval(a, b, seed=1)
    assert paired_interval(b, a).difference == -found.difference


def test_many_queries_are_drawn_in_blocks(pair, monkeypatch):
    expected = paired_interval(*pair, n=500)
    monkeypatch.setattr("pylate_eigenli.evaluation.bootstrap._DRAWN_AT_ONCE", 1000)
    assert paired_interval(*pair, n=500) == pytest.approx(expected)


def test_a_method_does_not_differ_from_itself(pair):
    a, _ = pair
    assert paired_interval(a, a) == (0, 0, 0)
    assert geometric_interval([a, a[:50]], [a, a[:50]]) == pytest.approx((0, 0, 0))


def test_the_geometric_mean_is_that_of_the_ratios_of_means(pair):
    a, b = pair
    found = geometric_interval([a, b], [b, a + 1])
    ratios = [a.mean() / b.mean(), b.mean() / (a.mean() + 1)]
    assert found.difference == pytest.approx(np.sqrt(np.prod(ratios)) - 1)
    assert found.low < found.difference < found.high


def test_unpaired_values_are_refused():
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        paired_interval([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="no collection"):
        geometric_interval([], [])
