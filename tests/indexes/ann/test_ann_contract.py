"""What every backend must do."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from helpers.cases import (
    QUERIES,
    Case,
    N,
    best,
    every_backend,
    packed_documents,
    packed_queries,
    recall,
)

from pylate_eigenli.indexes.ann import Backend


def assert_same_results(one: Backend, other: Backend, k: int = 10) -> None:
    for x, y in zip(
        one.search(packed_queries(), k), other.search(packed_queries(), k), strict=True
    ):
        np.testing.assert_array_equal(x, y)


@every_backend
class TestSearch:
    def test_follows_the_protocol(self, case: Case):
        backend = case.make(300)
        assert isinstance(backend, Backend)
        assert backend.dim == 300
        assert len(backend) == 0

    def test_finds_the_best(self, case: Case):
        labels, _ = case.holding(packed_documents()).search(packed_queries(), case.candidates)
        true = best(packed_queries(), packed_documents(), 10)
        if case.exact:
            np.testing.assert_array_equal(labels, true)
        assert recall(labels, true) >= 0.9

    def test_products_are_as_exact_as_the_storage(self, case: Case):
        queries, vectors = packed_queries(), packed_documents()
        labels, products = case.holding(vectors).search(queries, 10)
        true = np.take_along_axis(queries @ vectors.T, labels, axis=1)
        lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(vectors[0])
        assert np.abs((products - true) / lengths).max() < case.precision

    def test_results_have_types_shapes_and_order(self, case: Case):
        labels, products = case.holding(packed_documents()).search(packed_queries(), 10)
        assert labels.shape == products.shape == (QUERIES, 10)
        assert labels.dtype == np.int64
        assert products.dtype == np.float32
        assert (np.diff(products, axis=1) <= 0).all()
        assert all(len(set(row)) == 10 for row in labels.tolist())

    def test_labels_are_the_callers(self, case: Case):
        labels = np.cumsum(np.random.default_rng(0).integers(1, 2**40, N))
        found, _ = case.holding(packed_documents(), labels).search(packed_queries(), 10)
        positions, _ = case.holding(packed_documents()).search(packed_queries(), 10)
        assert recall(found, labels[positions]) > 0.95  # threads may insert in another order

    def test_batches_add_up(self, case: Case):
        vectors = packed_documents()
        backend = case.make(300)
        if backend.sample_size:
            backend.train(vectors)
        for part in np.split(np.arange(N), [1, 2, 50, 50, 200]):
            backend.add(part, vectors[part])
        assert len(backend) == N
        labels, _ = backend.search(packed_queries(), case.candidates)
        assert recall(labels, best(packed_queries(), vectors, 10)) >= 0.9

    def test_any_memory_layout_will_do(self, case: Case):
        backend, queries = case.holding(packed_documents()), packed_queries()
        for layout in (np.asfortranarray(queries), np.repeat(queries, 2, axis=1)[:, ::2]):
            labels, products = backend.search(layout, 10)
            np.testing.assert_array_equal(labels, backend.search(queries, 10)[0])
            np.testing.assert_array_equal(products, backend.search(queries, 10)[1])
        other = case.holding(np.asfortranarray(packed_documents()))
        assert recall(other.search(queries, 10)[0], backend.search(queries, 10)[0]) > 0.95


@every_backend
class TestFewVectors:
    def test_more_wanted_than_there_are(self, case: Case):
        labels, products = case.holding(packed_documents()).search(packed_queries(), N + 50)
        assert labels.shape == products.shape == (QUERIES, N + 50)
        assert (labels[:, N:] == -1).all()
        assert np.isneginf(products[labels < 0]).all()
        assert np.isfinite(products[labels >= 0]).all()
        if "IVF" not in str(case):
            np.testing.assert_array_equal(
                np.sort(labels[:, :N]), np.tile(np.arange(N), (QUERIES, 1))
            )

    def test_nothing_is_found_in_nothing(self, case: Case):
        labels, products = case.make(300).search(packed_queries(), 3)
        assert (labels == -1).all()
        assert np.isneginf(products).all()
        assert labels.shape == products.shape == (QUERIES, 3)

    def test_no_queries(self, case: Case):
        labels, products = case.holding(packed_documents()).search(packed_queries()[:0], 3)
        assert labels.shape == products.shape == (0, 3)

    def test_one_vector(self, case: Case):
        backend = case.make(300)
        if backend.sample_size:
            backend.train(packed_documents())
        backend.add(np.array([5]), packed_documents()[:1])
        labels, _ = backend.search(packed_documents()[:1], 2)
        assert labels.tolist() == [[5, -1]]

    def test_many_equal_vectors(self, case: Case):
        vectors = packed_documents().copy()
        vectors[100:] = vectors[100]
        backend = case.holding(vectors)
        labels, _ = backend.search(packed_queries(), 100)
        assert (labels >= 0).all()
        labels, _ = backend.search(vectors[100:101], 10)
        assert (labels >= 100).all()

    def test_zeros(self, case: Case):
        vectors = packed_documents().copy()
        vectors[:3] = 0
        backend = case.holding(vectors)
        labels, products = backend.search(np.zeros((1, 300), np.float32), 5)
        assert len(set(labels[0].tolist())) == 5
        assert np.isfinite(products).all()


@every_backend
class TestBytes:
    def test_are_all_there_is(self, case: Case):
        backend = case.holding(packed_documents())
        data = backend.to_bytes()
        assert data.dtype == np.uint8
        assert data.ndim == 1
        loaded = case.load(data)
        assert len(loaded) == len(backend)
        assert loaded.dim == 300
        assert_same_results(loaded, backend)
        assert_same_results(case.load(loaded.to_bytes()), backend)

    def test_may_be_a_mapped_file(self, case: Case, tmp_path):
        backend = case.holding(packed_documents())
        np.save(tmp_path / "data.npy", backend.to_bytes())
        loaded = case.load(np.load(tmp_path / "data.npy", mmap_mode="r"))
        gc.collect()
        assert_same_results(loaded, backend)

    def test_can_be_changed_when_loaded(self, case: Case):
        data = case.holding(packed_documents()).to_bytes()
        before = data.copy()
        backend = case.load(data)
        backend.add(np.arange(N, 2 * N), packed_documents(seed=5))
        np.testing.assert_array_equal(data, before)
        assert len(backend) == 2 * N
        labels, _ = backend.search(packed_queries(), case.candidates)
        both = np.concatenate([packed_documents(), packed_documents(seed=5)])
        assert recall(labels, best(packed_queries(), both, 10)) >= 0.9
        assert_same_results(case.load(backend.to_bytes()), backend)

    def test_of_nothing(self, case: Case):
        empty = case.make(300)
        loaded = case.load(empty.to_bytes())
        assert len(loaded) == 0
        assert loaded.dim == 300
        assert loaded.sample_size == empty.sample_size
        if loaded.sample_size:
            loaded.train(packed_documents())
        loaded.add(np.arange(N), packed_documents())
        labels, _ = loaded.search(packed_queries(), case.candidates)
        assert recall(labels, best(packed_queries(), packed_documents(), 10)) >= 0.9


@every_backend
class TestLengths:
    """Vectors of unequal length, as short documents have them."""

    @pytest.mark.parametrize("order", ["short first", "long first", "mixed"])
    def test_inner_products_decide(self, case: Case, order: str):
        lengths = np.linspace(0.5, 1, N, dtype=np.float32)
        if order == "long first":
            lengths = lengths[::-1]
        if order == "mixed":
            lengths = np.random.default_rng(0).permutation(lengths)
        vectors = packed_documents() * lengths[:, None]
        backend = case.make(300)
        if backend.sample_size:
            backend.train(vectors)
        for part in np.split(np.arange(N), 3):
            backend.add(part, vectors[part])
        labels, _ = backend.search(packed_queries(), case.candidates)
        assert recall(labels, best(packed_queries(), vectors, 10)) >= 0.9


@every_backend
class TestRefusals:
    def test_of_another_dimension(self, case: Case):
        backend = case.holding(packed_documents())
        for vectors in (packed_documents()[:, :-1], packed_documents()[0]):
            with pytest.raises(ValueError, match=r"\(n, 300\)"):
                backend.search(vectors, 1)
            with pytest.raises(ValueError, match=r"\(n, 300\)"):
                backend.add(np.arange(N, N + len(vectors)), vectors)
            with pytest.raises(ValueError, match=r"\(n, 300\)"):
                backend.train(vectors)
        assert len(backend) == N

    def test_of_vectors_before_training(self, case: Case):
        backend = case.make(300)
        if backend.sample_size:
            with pytest.raises(ValueError, match="trained"):
                backend.add(np.arange(N), packed_documents())
