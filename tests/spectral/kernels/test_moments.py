from __future__ import annotations

import numpy as np
import pytest

from pylate_eigenli.spectral.kernels.moments import BLOCK, TOKENS_PER_SUM, gram, second_moment
from pylate_eigenli.spectral.kernels.simd import LANES


def upper_blocks(matrix, block):
    keep = np.arange(len(matrix)) // block
    return np.where(keep[:, None] <= keep, matrix, 0)


class TestSecondMoment:
    @pytest.mark.parametrize(
        "m",
        [1, 3, *(n * TOKENS_PER_SUM + more for n in (1, 3, 64, 128) for more in (0, 1))],
    )
    @pytest.mark.parametrize("blocks", [1, 2, 3])
    def test_is_the_product_on_and_above_the_diagonal(self, m, blocks):
        x = np.random.default_rng(m).standard_normal((m, blocks * BLOCK)).astype(np.float32)
        out = np.full((blocks * BLOCK,) * 2, np.nan, np.float32)
        second_moment(x, out)
        np.testing.assert_allclose(
            upper_blocks(out, BLOCK),
            upper_blocks(x.astype(np.float64).T @ x, BLOCK),
            atol=1e-5 * m,
        )

    def test_of_many_equal_tokens_does_not_drift(self):
        token = np.random.default_rng(0).standard_normal(BLOCK).astype(np.float32)
        out = np.empty((BLOCK, BLOCK), np.float32)
        second_moment(np.tile(token, (100_000, 1)), out)
        expected = 1e5 * np.outer(token.astype(np.float64), token)
        np.testing.assert_allclose(np.triu(out), np.triu(expected), rtol=1e-5)


class TestGram:
    @pytest.mark.parametrize("rows", [1, 2, 5])
    @pytest.mark.parametrize("blocks", [1, 3])
    def test_is_the_product_on_and_above_the_diagonal(self, rows, blocks):
        shape = (rows * LANES, blocks * LANES)
        x = np.random.default_rng(rows).standard_normal(shape).astype(np.float32)
        out = np.full((rows * LANES,) * 2, np.nan, np.float32)
        gram(x, out)
        np.testing.assert_allclose(
            upper_blocks(out, LANES), upper_blocks(x.astype(np.float64) @ x.T, LANES), atol=1e-4
        )
