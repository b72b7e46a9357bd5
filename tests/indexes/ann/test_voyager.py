"""What only the Voyager backend has to get right."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import CASES, QUERIES, Case, N, best, packed_documents, packed_queries, recall

pytest.importorskip("voyager")

every_storage = pytest.mark.parametrize("case", [c for c in CASES if c.name == "voyager"], ids=str)


@every_storage
@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_the_scale_of_vectors_does_not_matter(case: Case, factor: float):
    vectors = packed_documents() * np.float32(factor)
    labels, products = case.holding(vectors).search(packed_queries() / np.float32(factor), 10)
    expected, unscaled = case.holding(packed_documents()).search(packed_queries(), 10)
    assert recall(labels, expected) > 0.95
    np.testing.assert_allclose(products, unscaled, rtol=0.05)


@every_storage
def test_much_larger_vectors_may_follow(case: Case):
    backend = case.holding(packed_documents())
    backend.add(np.arange(N, 2 * N), 100 * packed_documents(seed=5))
    assert len(backend) == 2 * N
    labels, products = backend.search(packed_queries(), 10)
    assert recall(labels, N + best(packed_queries(), packed_documents(seed=5), 10)) >= 0.9
    true = packed_queries() @ packed_documents(seed=5).T * 100
    np.testing.assert_allclose(products, np.take_along_axis(true, labels - N, axis=1), rtol=0.1)


def test_float8_rounds_to_the_nearest_step():
    case = Case("voyager", {"storage": "float8"}, 0)
    vectors = packed_documents()
    _, products = case.holding(vectors).search(vectors[:20], 1)
    # Cutting off instead would make all of them smaller, by 3 % here.
    ratios = products[:, 0] / np.square(vectors[:20]).sum(axis=1)
    assert abs(ratios.mean() - 1) < 2e-3


@every_storage
def test_what_cannot_be_reached_is_found_by_scanning(case: Case):
    vectors = packed_documents().copy()
    vectors[100:] = vectors[100]
    backend = case.holding(vectors)
    labels, products = backend.search(packed_queries(), N)
    np.testing.assert_array_equal(np.sort(labels), np.tile(np.arange(N), (QUERIES, 1)))
    assert (np.diff(products, axis=1) <= 0).all()


def test_long_vectors_stay_within_reach_of_short_ones():
    """Voyager's own handling of inner products finds 83 % here, and half for real documents."""
    lengths = np.random.default_rng(0).uniform(0.5, 1, N).astype(np.float32)
    vectors = packed_documents() * lengths[:, None]
    backend = Case("voyager", {"storage": "float32", "ef_search": 50}, 0).holding(vectors)
    labels, _ = backend.search(packed_queries(), 10)
    assert recall(labels, best(packed_queries(), vectors, 10)) >= 0.95
