from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli.scores import maxsim
from pylate_eigenli.scores.maxsim import maxsim_scores
from pylate_eigenli.tokens import collect
from pylate_eigenli.vectors.ranking import top_k


def items(rng, n, d=16, longest=40):
    return [rng.standard_normal((int(m), d)) for m in rng.integers(1, longest + 1, n)]


def definition(queries, documents):
    return np.array([[(q @ d.T).max(1).sum() for d in documents] for q in queries])


class TestMaxsimScores:
    @settings(max_examples=30, deadline=None)
    @given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 30), st.integers(1, 20))
    def test_equal_the_definition(self, seed, n_queries, n_documents, d):
        rng = np.random.default_rng(seed)
        queries, documents = items(rng, n_queries, d, 12), items(rng, n_documents, d)
        np.testing.assert_allclose(
            maxsim_scores(collect(queries), collect(documents)),
            definition(queries, documents),
            rtol=1e-4,
            atol=1e-4,
        )

    @pytest.mark.parametrize(("query_tokens", "document_tokens"), [(1, 1), (7, 50), (30, 41)])
    def test_do_not_depend_on_the_blocks(self, monkeypatch, query_tokens, document_tokens):
        rng = np.random.default_rng(0)
        queries, documents = collect(items(rng, 11)), collect(items(rng, 50))
        expected = maxsim_scores(queries, documents)
        monkeypatch.setattr(maxsim, "_QUERY_TOKENS", query_tokens)
        monkeypatch.setattr(maxsim, "_DOCUMENT_TOKENS", document_tokens)
        np.testing.assert_allclose(maxsim_scores(queries, documents), expected, rtol=1e-5)

    def test_equal_pylate(self, pylate):
        rng = np.random.default_rng(1)
        queries, documents = rng.standard_normal((3, 8, 16)), rng.standard_normal((5, 12, 16))
        given = torch.from_numpy(queries), torch.from_numpy(documents)
        expected = pylate.scores.colbert_scores(*given)
        actual = maxsim_scores(collect(queries), collect(documents))
        np.testing.assert_allclose(actual, expected, rtol=1e-5)

    def test_negative_maxima_are_not_lost_to_padding(self):
        document, query = np.array([[1.0, 0.0]]), np.array([[-1.0, 0.0]])
        longer = np.array([[0.0, 1.0], [0.0, -1.0]])
        scores = maxsim_scores(collect([query]), collect([document, longer]))
        assert scores.tolist() == [[-1.0, 0.0]]

    def test_float64_tokens_give_the_same_scores(self):
        rng = np.random.default_rng(2)
        queries, documents = items(rng, 3), items(rng, 5)
        expected = maxsim_scores(collect(queries), collect(documents))
        actual = maxsim_scores(
            collect(queries, dtype=torch.float64), collect(documents, dtype=torch.float64)
        )
        assert actual.dtype == np.float32
        np.testing.assert_array_equal(actual, expected)

    def test_different_dimensions_are_refused(self):
        with pytest.raises(ValueError, match="dimension 3, but documents have dimension 2"):
            maxsim_scores(collect([np.eye(3)]), collect([np.eye(2)]))


class TestTopK:
    @given(st.lists(st.integers(0, 3), min_size=1), st.integers(1, 50))
    def test_is_the_head_of_a_stable_sort(self, scores, k):
        scores = np.array(scores, np.float32)
        expected = np.argsort(-scores, kind="stable")[:k]
        np.testing.assert_array_equal(top_k(scores, k), expected)
