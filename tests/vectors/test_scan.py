"""The fast scan of codes is off by no more than it says, in both of its ways."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli.vectors import scan
from pylate_eigenli.vectors.quantization import Codes
from pylate_eigenli.vectors.ranking import finalists, top_k

BITS = (1, 2, 4, 8)


def vectors(seed: int, n: int, dim: int, power: float = 1.0) -> torch.Tensor:
    x = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))
    return x.sign() * x.abs() ** power


@pytest.fixture(params=[0, 100], ids=["bytes", "bits"])
def way(request, monkeypatch):
    monkeypatch.setattr(
        scan, "_FEW_QUERIES", {1: request.param, 2: request.param, 4: request.param, 8: 0}
    )


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("bits", BITS)
class TestMargins:
    @settings(max_examples=25, deadline=None)
    @given(
        seed=st.integers(0, 10**6),
        n=st.integers(0, 40),
        m=st.integers(1, 6),
        dim=st.integers(1, 700),
        power=st.sampled_from([1.0, 3.0]),
    )
    def test_bound_the_difference_from_exact_scores(self, bits, seed, n, m, dim, power):
        codes = Codes.encode(vectors(seed, n, dim, power), bits)
        queries = vectors(seed + 1, m, dim, power)
        scores, margins = codes.approximate_scores(queries)
        assert scores.shape == (m, n)
        exact = queries.double() @ codes.decode().double().mT
        assert (np.abs(scores - exact.numpy()) <= margins[:, None]).all()

    @pytest.mark.parametrize("power", [1.0, 2.0])
    def test_are_small_enough_to_leave_few_finalists(self, bits, power):
        codes = Codes.encode(vectors(1, 3000, 2080, power), bits)
        query = vectors(2, 1, 2080, power)
        (scores,), (margin,) = codes.approximate_scores(query)
        best = finalists(scores, margin, 10)
        assert len(best) < 200
        exact = codes.scores(query)[0]
        assert set(top_k(exact, 10)) <= set(best)

    def test_a_query_of_zeros_scores_zero(self, bits):
        codes = Codes.encode(vectors(3, 5, 40), bits)
        scores, margins = codes.approximate_scores(torch.zeros(1, 40))
        assert not scores.any()
        assert not margins.any()
