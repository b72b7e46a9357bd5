from __future__ import annotations

import numpy as np
import pytest
from helpers.definition import spectrum, unit_rows
from helpers.strategies import documents, orthogonal
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli.spectral.kernels.eigensolver import orient, solve

EPS = float(np.finfo(np.float32).eps)
UNTOUCHED = 7.0


def run(matrices, k, tolerance=None):
    """Solve for (tokens, d) matrices; rows that the solver must not write hold UNTOUCHED."""
    tokens = np.concatenate(matrices).astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in matrices])]).astype(np.int64)
    n, d = len(matrices), tokens.shape[1]
    if tolerance is None:
        tolerance = EPS * (d + np.diff(offsets) / 8)
    bases = np.full((n, k, d), UNTOUCHED, np.float32)
    values, ranks = np.zeros((n, k)), np.zeros(n, np.int64)
    solve(tokens, offsets, k, np.broadcast_to(tolerance, n).copy(), bases, values, ranks)
    return bases, values, ranks


class TestSolve:
    @settings(max_examples=50, deadline=None)
    @given(documents(), st.data())
    def test_finds_the_leading_eigenpairs_or_reports_failure(self, document, data):
        d = document.tokens.shape[1]
        k = data.draw(st.integers(1, d))
        (basis,), (values,), (rank,) = run([document.tokens], k)
        if rank == -1:
            return
        assert rank == min(k, document.rank)
        w = basis[:rank].astype(np.float64)
        expected = spectrum(document.tokens)[0]
        moment = document.tokens.T @ document.tokens
        np.testing.assert_allclose(values[:rank], expected[:rank], atol=2e-6 * expected[0])
        np.testing.assert_allclose(w @ w.T, np.eye(rank), atol=5e-6)
        # Directions of small eigenvalues are only as good as the moment's entries are.
        np.testing.assert_allclose(moment @ w.T, w.T * values[:rank], atol=2e-5 * expected[0])
        assert (basis[rank:] == UNTOUCHED).all()

    @pytest.mark.parametrize("scale", [1e-15, 1.0, 1e6, 1e15])
    def test_equal_eigenvalues_of_tokens_of_any_length_have_unit_vectors(self, scale):
        # Its Gram matrix is a multiple of the identity but for rounding: a pivot is exactly zero.
        tokens = scale * np.array([[-0.722769, -0.6910896875], [-0.6910896875, 0.722769]])
        for k in (1, 2):
            (basis,), _, (rank,) = run([tokens], k)
            if rank != -1:
                np.testing.assert_allclose(basis @ basis.T, np.eye(k), atol=5e-6)

    @pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 7, 16, 33, 40])
    @pytest.mark.parametrize("m", [1, 2, 3, 8, 9, 39, 41, 80])
    def test_no_shape_is_special(self, m, d):
        x = unit_rows(np.random.default_rng(m + d), m, d)
        for k in {1, (d + 1) // 2, d}:
            (basis,), _, (rank,) = run([x], k)
            assert rank == min(k, m, d)
            energy = ((x.astype(np.float64) @ basis[:rank].T) ** 2).sum()
            assert energy == pytest.approx(spectrum(x)[0][:k].sum(), rel=1e-5)

    def test_ordinary_documents_rarely_need_the_fallback(self):
        rng = np.random.default_rng(0)
        matrices = [unit_rows(rng, m, 48) for m in rng.integers(1, 100, 300)]
        assert np.mean(run(matrices, k=16)[2] < 0) < 0.02

    def test_equal_eigenvalues_need_the_fallback(self):
        rows = orthogonal(np.random.default_rng(0), 12)
        _, _, ranks = run([rows, np.concatenate([rows, rows])], k=6)
        assert ranks.tolist() == [-1, -1]

    def test_equal_eigenvalues_beyond_k_are_harmless(self):
        rows = orthogonal(np.random.default_rng(0), 12)
        rows[:3] *= [[4], [3], [2]]
        (basis,), (values,), (rank,) = run([rows], k=3)
        assert rank == 3
        np.testing.assert_allclose(values, [16, 9, 4], rtol=1e-5)
        np.testing.assert_allclose(np.abs(basis @ rows[:3].T), np.diag([4, 3, 2]), atol=1e-4)

    @pytest.mark.parametrize("scale", [1e10, 1e15, 1e18])
    def test_overflowing_sums_need_the_fallback(self, scale):
        _, _, (rank,) = run([scale * unit_rows(np.random.default_rng(0), 20, 8)], k=4)
        assert rank == -1

    def test_an_eigenvalue_below_the_tolerance_counts_as_zero(self):
        tokens = np.diag([1.0, 0.1, 0.01, 0.001])
        assert run([tokens], k=4, tolerance=1e-5)[2].tolist() == [3]
        assert run([tokens], k=4, tolerance=1e-3)[2].tolist() == [2]
        assert run([tokens], k=1, tolerance=1e-3)[2].tolist() == [1]

    def test_a_document_does_not_depend_on_its_neighbours(self):
        rng = np.random.default_rng(0)
        matrices = [unit_rows(rng, m, 24) for m in (5, 50, 1, 24, 23, 100)]
        together = run(matrices, k=10)
        for i, x in enumerate(matrices):
            for whole, alone in zip(together, run([x], k=10), strict=True):
                assert whole[i].tobytes() == alone[0].tobytes()

    def test_an_overflow_does_not_spread_to_the_next_document(self):
        rng = np.random.default_rng(0)
        x = unit_rows(rng, 30, 24)
        bases, _, ranks = run([1e15 * unit_rows(rng, 40, 24), x], k=10)
        assert ranks.tolist() == [-1, 10]
        assert bases[1].tobytes() == run([x], k=10)[0][0].tobytes()


class TestOrient:
    def test_the_largest_component_of_every_row_becomes_positive(self):
        w = np.array([[1.0, -2.0], [-3.0, 1.0], [0.5, 0.2], [-1.0, -1.0]], np.float32)
        orient(w, 3)
        assert w.tolist() == [[-1, 2], [3, -1], [0.5, np.float32(0.2)], [-1, -1]]

    @settings(max_examples=20, deadline=None)
    @given(documents(scales=(1.0,)))
    def test_tokens_of_opposite_sign_give_the_same_basis(self, document):
        (a,), _, (rank,) = run([document.tokens], k=1)
        (b,), _, _ = run([-document.tokens], k=1)
        if rank == 1:
            np.testing.assert_array_equal(a, b)
