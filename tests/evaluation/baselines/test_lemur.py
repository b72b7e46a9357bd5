"""LEMUR's vectors are least-squares fits of single-token MaxSim; seeds and samples are kept."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli.evaluation.baselines import Lemur
from pylate_eigenli.evaluation.baselines import lemur as baseline
from pylate_eigenli.evaluation.baselines.lemur import RandomFeatures
from pylate_eigenli.scores.maxsim import maxsim_scores
from pylate_eigenli.tokens import TokenBatch, collect

ELM = Lemur(features=64, trained=False, show_progress=False)
MLP = Lemur(features=64, epochs=3, learning_tokens=600, sample_tokens=500, show_progress=False)


def items(rng, lengths, d=16):
    rows = [rng.standard_normal((int(n), d)) for n in lengths]
    return [np.float32(x / np.linalg.norm(x, axis=1, keepdims=True)) for x in rows]


@pytest.fixture(scope="module")
def documents():
    rng = np.random.default_rng(0)
    return collect(items(rng, rng.integers(1, 40, 60)))


def targets(encoder, documents):
    """MaxSim of every token of the sample, standardised. Shape: (tokens, documents)."""
    alone = TokenBatch(encoder.sample, np.arange(len(encoder.sample) + 1))
    return (maxsim_scores(alone, documents) - encoder.mean) / encoder.deviation


@pytest.fixture(autouse=True)
def exactly(monkeypatch):
    monkeypatch.setattr(baseline, "_rough", lambda: torch.float32)


class TestTheRegression:
    @pytest.mark.parametrize("lemur", [ELM, MLP], ids=["elm", "mlp"])
    def test_vectors_are_the_least_squares_solution_for_the_sample(self, lemur, documents):
        encoder = lemur.fit(documents)
        z = encoder.features(encoder.sample).double().numpy()
        # Layer norm leaves one direction empty but for rounding errors.
        noise = np.finfo(np.float32).eps * max(z.shape)
        expected = np.linalg.lstsq(z, targets(encoder, documents), rcond=noise)[0].T
        solutions = encoder.encode_documents(documents) @ encoder.basis.numpy()
        np.testing.assert_allclose(solutions, expected, atol=2e-3)

    def test_fewer_tokens_than_features_get_the_shortest_exact_solution(self):
        documents = collect(items(np.random.default_rng(1), [3, 5, 2]))
        encoder = ELM.fit(documents)
        vectors = encoder.encode_documents(documents)
        z = encoder.features(encoder.sample).double().numpy()
        vectors = vectors @ encoder.basis.numpy()
        np.testing.assert_allclose(z @ vectors.T, targets(encoder, documents), atol=1e-3)
        shortest = (np.linalg.pinv(z) @ targets(encoder, documents)).T
        np.testing.assert_allclose(vectors, shortest, atol=1e-3)

    def test_many_random_features_reach_maxsim_on_tokens_that_were_learnt(self, documents):
        exact = maxsim_scores(documents, documents)

        def correlation(features):
            encoder = dataclasses.replace(ELM, features=features).fit(documents)
            scores = encoder.encode_queries(documents) @ encoder.encode_documents(documents).T
            return np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(scores, exact, strict=True)])

        few, many = correlation(32), correlation(1024)
        assert few < many
        assert many > 0.99

    def test_a_query_is_the_sum_of_its_tokens(self, documents):
        encoder = ELM.fit(documents)
        query, other = documents.tokens[:7], documents.tokens[7:9]
        whole = encoder.encode_queries(collect([query, other], names="query"))
        tokens = encoder.encode_queries(collect([row[None] for row in query], names="query"))
        np.testing.assert_allclose(whole[0], tokens.sum(0), rtol=1e-3, atol=1e-4)

    def test_coordinates_of_the_sample_are_uncorrelated_and_of_equal_length(self, documents):
        encoder = ELM.fit(documents)
        alone = TokenBatch(encoder.sample, np.arange(len(encoder.sample) + 1))
        coordinates = encoder.encode_queries(alone)
        np.testing.assert_allclose(coordinates.T @ coordinates, np.eye(encoder.dim), atol=1e-2)

    def test_rough_products_change_little(self, documents, monkeypatch):
        exact = ELM.fit(documents).encode_documents(documents)
        monkeypatch.setattr(baseline, "_rough", lambda: torch.bfloat16)
        rough = ELM.fit(documents).encode_documents(documents)
        assert np.corrcoef(exact.ravel(), rough.ravel())[0, 1] > 0.999


class TestTraining:
    def test_trained_features_predict_unseen_tokens_better_than_as_many_random_ones(self):
        # Tokens that lie near a subspace, which training finds.
        rng = np.random.default_rng(2)
        plane = rng.standard_normal((3, 32))

        def near(lengths):
            rows = [rng.standard_normal((n, 3)) @ plane for n in lengths]
            rows = [x + 0.3 * rng.standard_normal(x.shape) for x in rows]
            return collect([x / np.linalg.norm(x, axis=1, keepdims=True) for x in rows])

        documents, queries = near(rng.integers(5, 30, 100)), near([8] * 40)
        exact = maxsim_scores(queries, documents)

        def error(lemur):
            encoder = lemur.fit(documents)
            scores = encoder.encode_queries(queries) @ encoder.encode_documents(documents).T
            scores = scores * encoder.deviation + 8 * encoder.mean
            return float(np.square(scores - exact).mean())

        few = {"features": 24, "show_progress": False, "sample_tokens": 1500}
        assert error(Lemur(**few, epochs=10)) < 0.8 * error(Lemur(**few, trained=False))

    def test_it_stops_when_held_out_tokens_are_not_predicted_better(self, documents, monkeypatch):
        steps = []
        step = torch.optim.Adam.step
        monkeypatch.setattr(torch.optim.Adam, "step", lambda self: (steps.append(1), step(self))[1])
        monkeypatch.setattr(baseline, "_RATE", 10.0)  # which makes it worse
        dataclasses.replace(MLP, epochs=50).fit(documents)
        assert 0 < len(steps) < 50

    def test_the_generator_of_the_process_is_left_alone(self, documents):
        torch.manual_seed(7)
        expected = torch.rand(3)
        torch.manual_seed(7)
        MLP.fit(documents)
        assert torch.equal(torch.rand(3), expected)


class TestSamples:
    @pytest.mark.parametrize("lemur", [ELM, MLP], ids=["elm", "mlp"])
    def test_a_seed_says_everything(self, lemur, documents):
        first, again = (lemur.fit(documents).encode_documents(documents) for _ in range(2))
        np.testing.assert_array_equal(first, again)
        other = dataclasses.replace(lemur, seed=1).fit(documents).encode_documents(documents)
        assert not np.allclose(first, other)

    def test_tokens_of_queries_are_learnt_from_first(self, documents):
        queries = collect(items(np.random.default_rng(3), [4, 6]), names="query")
        lemur = dataclasses.replace(ELM, sample_tokens=30)
        sample = lemur.fit(documents, queries).sample
        asked = {tuple(row) for row in queries.tokens.tolist()}
        assert sum(tuple(row) in asked for row in sample.tolist()) == 10
        assert len(sample) == 30
        assert len(dataclasses.replace(ELM, sample_tokens=6).fit(documents, queries).sample) == 6

    def test_fewer_documents_are_predicted_than_there_are(self, documents):
        lemur = dataclasses.replace(MLP, documents=5)
        assert len(lemur.fit(documents).encode_documents(documents)) == 60

    @settings(max_examples=10, deadline=None)
    @given(
        lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
        d=st.integers(1, 4),
        trained=st.booleans(),
    )
    def test_tiny_and_ragged_collections_have_finite_vectors(self, lengths, d, trained):
        documents = collect(items(np.random.default_rng(4), lengths, d))
        lemur = Lemur(features=8, trained=trained, epochs=1, show_progress=False)
        encoder = lemur.fit(documents)
        assert np.isfinite(encoder.encode_documents(documents)).all()
        assert np.isfinite(encoder.encode_queries(documents)).all()


@pytest.mark.parametrize(
    "name", ["features", "epochs", "documents", "learning_tokens", "sample_tokens"]
)
@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_impossible_numbers_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a positive integer"):
        Lemur(**{name: value})


def test_random_features_are_normalised():
    found = RandomFeatures(4, 50)(torch.randn(3, 4))
    torch.testing.assert_close(found.mean(1), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.std(1, correction=0), torch.ones(3), atol=1e-3, rtol=0)
