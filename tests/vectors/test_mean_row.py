"""The row of the mean token: an isometric part of packed matrices that codes keep apart."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli.vectors.mean_row import MeanRow
from pylate_eigenli.vectors.packing import pack, unpack
from pylate_eigenli.vectors.quantization import StoredVectors


def case(seed: int, d: int, n: int = 6) -> tuple[MeanRow, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    direction = torch.nn.functional.normalize(torch.randn(d, generator=random), dim=0)
    matrices = torch.randn(n, d, d, generator=random)
    return MeanRow(direction), pack(matrices + matrices.mT)


class TestCoordinates:
    @settings(max_examples=25, deadline=None)
    @given(seed=st.integers(0, 10**6), d=st.integers(1, 20))
    def test_keep_inner_products_of_what_they_stand_for(self, seed, d):
        row, packed = case(seed, d)
        coordinates = row.coordinates(packed)
        alone = row.add(torch.zeros_like(packed), coordinates)
        torch.testing.assert_close(row.coordinates(alone), coordinates, atol=1e-4, rtol=1e-4)
        expected = packed @ alone.mT
        torch.testing.assert_close(coordinates @ coordinates.mT, expected, atol=1e-3, rtol=1e-4)

    @settings(max_examples=25, deadline=None)
    @given(seed=st.integers(0, 10**6), d=st.integers(1, 20))
    def test_leave_a_matrix_without_that_row(self, seed, d):
        row, packed = case(seed, d)
        rest = unpack(row.add(packed.clone(), row.coordinates(packed), -1))
        assert (rest @ row.direction).abs().max() < 1e-4


class TestStoredVectors:
    @pytest.mark.parametrize("dtype", ["int8", "int4", "int2", "binary"])
    def test_score_what_they_decode_to(self, dtype):
        row, packed = case(0, 16, 30)
        stored = StoredVectors.encode(packed, dtype, None, row)
        _, queries = case(1, 16)
        expected = queries @ stored.decode(None, row).mT
        for some in (slice(None), slice(1)):
            found = torch.from_numpy(stored.scores(queries[some], None, row))
            torch.testing.assert_close(found, expected[some], atol=1e-2, rtol=1e-4)

    @pytest.mark.parametrize("dtype", ["int4", "int2", "binary"])
    def test_keep_the_row_at_eight_bits(self, dtype):
        row, packed = case(0, 16, 30)
        stored = StoredVectors.encode(packed, dtype, None, row)
        assert stored.row is not None
        error = row.coordinates(stored.decode(None, row)) - row.coordinates(packed)
        assert (error.abs().amax(1).numpy() <= 0.51 * stored.row.scales + 1e-4).all()

    def test_of_two_bits_are_as_good_as_the_best_uniform_quantiser_of_normal_vectors(self):
        x = torch.randn(50, 2000, generator=torch.Generator().manual_seed(4))
        decoded = StoredVectors.encode(x, "int2", None).decode(None)
        cosines = torch.nn.functional.cosine_similarity(decoded, x)
        assert (1 - cosines.square()).mean() < 0.12  # the optimum is 0.1188
        torch.testing.assert_close((decoded * x).sum(1), x.square().sum(1), rtol=1e-4, atol=1e-2)
