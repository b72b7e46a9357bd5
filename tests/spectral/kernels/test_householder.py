from __future__ import annotations

import numpy as np
import pytest

from pylate_eigenli.spectral.kernels.householder import reflect_back, tridiagonalise
from pylate_eigenli.spectral.kernels.simd import LANES


def reduced(matrix):
    n = len(matrix)
    size = -(-n // LANES) * LANES
    a = np.zeros((size, size), np.float32)
    a[:n, :n] = matrix
    # What lies below the blocks of the diagonal is never looked at.
    a[np.tril_indices(size, -LANES)] = np.nan
    diagonal, off = np.empty(n), np.empty(n)
    v, tau = np.full((size, size), np.nan, np.float32), np.empty(size, np.float32)
    tridiagonalise(a, n, diagonal, off, v, tau)
    t = np.diag(diagonal) + np.diag(off[: n - 1], 1) + np.diag(off[: n - 1], -1)
    return t, v, tau


def symmetric(n, seed):
    x = np.random.default_rng(seed).standard_normal((2 * n, n))
    return (x.T @ x / n).astype(np.float32)


class TestTridiagonalise:
    @pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 64, 100])
    def test_keeps_the_spectrum(self, n):
        matrix = symmetric(n, n)
        t, _, _ = reduced(matrix)
        expected = np.linalg.eigvalsh(matrix.astype(np.float64))
        np.testing.assert_allclose(np.linalg.eigvalsh(t), expected, atol=2e-6 * expected[-1])

    def test_leaves_a_diagonal_matrix_alone(self):
        t, _, tau = reduced(np.diag(np.arange(1.0, 13.0)))
        np.testing.assert_array_equal(t, np.diag(np.arange(1.0, 13.0)))
        assert not tau[:11].any()


class TestReflectBack:
    @pytest.mark.parametrize("n", [1, 2, 3, 8, 17, 50])
    def test_gives_the_eigenvectors_of_the_matrix(self, n):
        matrix = symmetric(n, n)
        t, v, tau = reduced(matrix)
        values, vectors = np.linalg.eigh(t)
        rows = np.zeros((-(-n // 4) * 4, v.shape[1]), np.float32)
        rows[:n, :n] = vectors.T
        reflect_back(v, tau, n, rows)
        w = rows[:n, :n].astype(np.float64)
        np.testing.assert_allclose(w @ w.T, np.eye(n), atol=5e-6)
        np.testing.assert_allclose(matrix @ w.T, w.T * values, atol=5e-6 * values[-1])
        assert not rows[:, n:].any()
