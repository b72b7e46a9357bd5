"""Codes: what rounding to 1, 2, 4 and 8 bits keeps of a vector, and how it is scored."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli.vectors.quantization import Codes, code_width

BITS = (1, 2, 4, 8)


def vectors(seed: int, n: int, dim: int) -> torch.Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bits", BITS)
class TestScoresAreInnerProductsWithTheDecodedVectors:
    @settings(max_examples=25, deadline=None)
    @given(seed=st.integers(0, 10**6), n=st.integers(1, 40), dim=st.integers(1, 70))
    def test_for_one_query_and_for_many(self, bits, seed, n, dim):
        codes = Codes.encode(vectors(seed, n, dim), bits)
        queries = vectors(seed + 1, 6, dim)
        expected = (queries @ codes.decode().mT).numpy()
        tolerance = 1e-5 * np.abs(expected).max() + 1e-5
        np.testing.assert_allclose(codes.scores(queries), expected, atol=tolerance)
        np.testing.assert_allclose(codes.scores(queries[:1]), expected[:1], atol=tolerance)


@pytest.mark.parametrize("bits", BITS)
class TestSize:
    @pytest.mark.parametrize("dim", [1, 7, 8, 9, 8256])
    def test_a_code_takes_the_bits_of_its_dimensions_in_whole_bytes(self, bits, dim):
        assert code_width(dim, bits) == int(np.ceil(dim * bits / 8))
        assert Codes.encode(vectors(0, 2, dim), bits).values.shape == (2, code_width(dim, bits))


class TestPrecision:
    def test_eight_bits_are_off_by_half_a_step_at_most(self):
        x = vectors(3, 50, 300)
        codes = Codes.encode(x, 8)
        error = (codes.decode() - x).abs().amax(1).numpy()
        assert (error <= 0.5001 * codes.scales).all()

    def test_four_bits_are_near_the_best_uniform_quantiser_of_normal_vectors(self):
        x = vectors(4, 50, 2000)
        error = (Codes.encode(x, 4).decode() - x).square().mean().item()
        assert error < 0.0125  # the optimum is 0.01154

    def test_one_bit_keeps_the_inner_product_with_the_vector_itself(self):
        x = vectors(5, 20, 500)
        decoded = Codes.encode(x, 1).decode()
        torch.testing.assert_close((decoded * x).sum(1), x.square().sum(1), rtol=1e-4, atol=1e-3)

    @pytest.mark.parametrize("bits", BITS)
    def test_a_zero_vector_scores_zero(self, bits):
        codes = Codes.encode(torch.zeros(1, 20), bits)
        assert codes.scores(vectors(6, 1, 20))[0, 0] == pytest.approx(0.0, abs=1e-6)


class TestSelection:
    @pytest.mark.parametrize("bits", BITS)
    def test_rows_keep_their_scores_when_chosen(self, bits):
        codes = Codes.encode(vectors(7, 30, 40), bits)
        query = vectors(8, 1, 40)
        chosen = np.array([3, 3, 17, 0])
        np.testing.assert_array_equal(codes[chosen].scores(query), codes.scores(query)[:, chosen])
