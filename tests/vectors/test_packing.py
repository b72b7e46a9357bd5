from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.definition import unit_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli import compress
from pylate_eigenli.tokens import collect
from pylate_eigenli.vectors.packing import pack, pack_moments, pack_subspaces, packed_dim, unpack

dims = st.integers(1, 24)
seeds = st.integers(0, 2**32 - 1)


def symmetric(seed, n, d, dtype=torch.float64):
    x = torch.from_numpy(np.random.default_rng(seed).standard_normal((n, d, d))).to(dtype)
    return x + x.mT


def kernel(x):
    """K(x) as the definition lists it: squares, then sqrt(2) times the products."""
    d = len(x)
    products = [np.sqrt(2.0) * x[i] * x[j] for i in range(d) for j in range(i + 1, d)]
    return np.array([*(x**2), *products])


class TestPacking:
    def test_the_dimension(self):
        assert [packed_dim(d) for d in (1, 2, 3, 128)] == [1, 3, 6, 8256]

    @settings(max_examples=30, deadline=None)
    @given(dims, st.integers(0, 4), seeds, st.sampled_from([torch.float32, torch.float64]))
    def test_unpacking_inverts_packing(self, d, n, seed, dtype):
        matrices = symmetric(seed, n, d, dtype)
        packed = pack(matrices)
        assert packed.shape == (n, packed_dim(d))
        assert packed.dtype == dtype
        torch.testing.assert_close(unpack(packed), matrices)
        torch.testing.assert_close(pack(unpack(packed)), packed)

    @settings(max_examples=30, deadline=None)
    @given(dims, seeds)
    def test_inner_products_become_dot_products(self, d, seed):
        a, b = symmetric(seed, 2, d)
        dot = pack(a[None])[0] @ pack(b[None])[0]
        torch.testing.assert_close(dot, torch.trace(a @ b), rtol=1e-12, atol=1e-12)

    @settings(max_examples=20, deadline=None)
    @given(st.integers(1, 8), seeds)
    def test_an_outer_product_is_packed_as_the_kernel_vector(self, d, seed):
        x = np.random.default_rng(seed).standard_normal(d)
        packed = pack(torch.from_numpy(np.outer(x, x))[None])[0]
        np.testing.assert_allclose(packed.numpy(), kernel(x), rtol=1e-12)

    @pytest.mark.parametrize("size", [2, 4, 5, 8255, 8257])
    def test_a_size_that_no_dimension_has_is_refused(self, size):
        with pytest.raises(ValueError, match=f"{size} is not"):
            unpack(torch.zeros(1, size))


class TestScoresAsDotProducts:
    @settings(max_examples=30, deadline=None)
    @given(dims, st.data())
    def test_queries_times_subspaces_are_the_scores(self, d, data):
        k = data.draw(st.integers(1, d))
        rng = np.random.default_rng(data.draw(seeds))
        queries = [unit_rows(rng, n, d) for n in (1, 3, 8)]
        documents = [unit_rows(rng, m, d) for m in (1, 4, 40)]
        subspaces = compress(documents, k, short_documents="truncate")
        packed = pack_subspaces(subspaces.bases, subspaces.offsets, subspaces.floors.numpy())
        dots = pack_moments(collect(queries)) @ packed.mT
        for i, query in enumerate(queries):
            for j in range(len(documents)):
                w = subspaces[j].numpy().astype(np.float64)
                assert dots[i, j] == pytest.approx(((query @ w.T) ** 2).sum(), abs=1e-5)
                kernels = sum(map(kernel, query.astype(np.float64))) @ sum(map(kernel, w))
                assert dots[i, j] == pytest.approx(kernels, abs=1e-5)

    def test_the_floor_is_a_share_of_the_identity(self):
        rng = np.random.default_rng(0)
        documents = [unit_rows(rng, m, 12) for m in (1, 3, 70)]
        query = unit_rows(rng, 5, 12)
        subspaces = compress(documents, 6)
        packed = pack_subspaces(subspaces.bases, subspaces.offsets, subspaces.floors.numpy())
        scores = (pack_moments(collect([query])) @ packed.mT)[0]
        for j, floor in enumerate(subspaces.floors.tolist()):
            inside = float(((query @ subspaces[j].numpy().T) ** 2).sum())
            assert scores[j] == pytest.approx((1 - floor) * inside + floor * 5, abs=1e-5)
        assert subspaces.floors.tolist() == pytest.approx([5 / 11, 3 / 9, 0])
