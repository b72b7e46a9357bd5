from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli.spectral.kernels.simd import LANES
from pylate_eigenli.spectral.kernels.tridiagonal import eigenvectors, largest_eigenvalues


def dense(diagonal, off):
    return np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1)


def tridiagonal(n, seed):
    rng = np.random.default_rng(seed)
    return rng.uniform(0, 1, n), rng.standard_normal(max(n - 1, 0)) / 4


class TestLargestEigenvalues:
    @settings(max_examples=50, deadline=None)
    @given(st.integers(1, 60), st.integers(0, 2**32), st.data())
    def test_are_within_the_returned_width(self, n, seed, data):
        diagonal, off = tridiagonal(n, seed)
        k = data.draw(st.integers(1, n))
        out = np.empty(k)
        width = largest_eigenvalues(diagonal, off, k, out)
        expected = np.linalg.eigvalsh(dense(diagonal, off))[::-1][:k]
        np.testing.assert_allclose(out, expected, atol=width + 2e-6 * np.abs(expected).max())

    def test_are_found_in_a_block_diagonal_matrix(self):
        diagonal = np.repeat([3.0, 1.0, 0.0], 5)
        out = np.empty(15)
        width = largest_eigenvalues(diagonal, np.zeros(14), 15, out)
        np.testing.assert_allclose(out, diagonal, atol=2 * width)


class TestEigenvectors:
    @pytest.mark.parametrize("n", [1, 2, 3, LANES, LANES + 1, 70])
    def test_of_rough_eigenvalues_converge(self, n):
        diagonal, off = tridiagonal(n, n)
        matrix = dense(diagonal, off)
        expected = np.linalg.eigvalsh(matrix)[::-1].copy()
        values = expected + 1e-7 * np.random.default_rng(n).standard_normal(n)
        settled, z = np.zeros(n, bool), np.empty((n, -(-n // LANES) * LANES))
        eigenvectors(diagonal, off, values, settled, z)
        z = z[:, :n]
        assert settled.all()
        np.testing.assert_allclose((z * z).sum(0), 1, rtol=1e-12)
        np.testing.assert_allclose(matrix @ z, z * values, atol=1e-8)
        np.testing.assert_allclose(values, expected, atol=1e-8)

    def test_far_from_any_eigenvalue_are_not_settled(self):
        # The vector of NaN is what an overflow leaves behind.
        settled, z = np.ones(1, bool), np.empty((3, LANES))
        eigenvectors(np.full(3, np.nan), np.zeros(2), np.array([1.0]), settled, z)
        assert not settled.any()
