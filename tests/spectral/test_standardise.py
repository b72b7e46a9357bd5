"""Standardisation: statistics are exact, documents do not depend on queries, nothing divides by 0."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from helpers.anisotropic import anisotropic
from helpers.strategies import documents
from hypothesis import given
from hypothesis import strategies as st

from pylate_eigenli import EigenLIIndex, EigenLISVIndex
from pylate_eigenli.spectral.standardise import CONSTANT, Standardise, TokenStatistics
from pylate_eigenli.tokens import TokenBatch, collect
from pylate_eigenli.vectors.ranking import top_k

INDEXES = [EigenLIIndex, EigenLISVIndex]


@st.composite
def batches(draw: st.DrawFn) -> list[np.ndarray]:
    """Several documents of one dimension."""
    tokens = draw(documents(scales=(1.0,)))[0]
    cuts = draw(st.lists(st.integers(1, max(len(tokens) - 1, 1)), max_size=3))
    return [part for part in np.split(tokens, sorted(cuts)) if len(part)]


@given(batches())
def test_statistics_of_parts_add_up_to_those_of_the_whole(items) -> None:
    whole = TokenStatistics.of(collect(items))
    parts = TokenStatistics.of(collect(items[:1]))
    for item in items[1:]:
        parts = parts.plus(TokenStatistics.of(collect([item])))
    assert parts.count == whole.count
    np.testing.assert_allclose(parts.total, whole.total, atol=1e-9)
    np.testing.assert_allclose(parts.moment, whole.moment, atol=1e-9)
    assert parts.energy(parts.mean) == pytest.approx(whole.energy(whole.mean), abs=1e-9)


@given(batches())
def test_arrays_restore_the_transform(items) -> None:
    batch = collect(items)
    fitted = Standardise().fitted_to(batch).with_queries(batch)
    restored = Standardise.from_arrays(fitted.to_arrays())
    assert torch.equal(restored.documents(batch).tokens, fitted.documents(batch).tokens)
    assert torch.equal(restored.queries(batch).tokens, fitted.queries(batch).tokens)


def test_known_queries_have_mean_zero_energy_one_and_the_constant() -> None:
    batch = anisotropic(200, seed=1)
    fitted = Standardise().fitted_to(batch).with_queries(batch)
    tokens = fitted.queries(batch).tokens
    np.testing.assert_allclose(tokens[:, :-1].mean(0), 0, atol=1e-4)
    assert float(tokens[:, :-1].square().sum(1).mean()) == pytest.approx(1, rel=1e-4)
    assert (tokens[:, -1] == CONSTANT).all()


def test_the_expected_query_is_the_mean_moment_of_standardised_queries() -> None:
    batch = anisotropic(50, seed=2)
    fitted = Standardise().fitted_to(batch).with_queries(batch)
    tokens = fitted.queries(batch).tokens.double()
    expected = fitted.expected_query
    assert expected is not None
    np.testing.assert_allclose(expected.mean, (tokens.mT @ tokens / len(tokens)), atol=1e-5)


@pytest.mark.parametrize("tokens", [[[1.0, 0.0]], [[0.6, 0.8]] * 5])
def test_one_document_and_equal_tokens_give_finite_tokens(tokens) -> None:
    batch = collect([tokens])
    fitted = Standardise().fitted_to(batch)
    assert torch.isfinite(fitted.documents(batch).tokens).all()
    assert torch.isfinite(fitted.queries(batch).tokens).all()
    assert torch.isfinite(fitted.with_queries(batch).queries(batch).tokens).all()


@pytest.mark.parametrize("sizes", [(30,), (1, 29), (7, 7, 16)])
def test_documents_keep_the_first_statistics_and_queries_expect_those_of_all(sizes) -> None:
    items = list(anisotropic(30, seed=3))
    first = fitted = Standardise().fitted_to(collect(items[: sizes[0]]))
    for begin, end in itertools.pairwise(np.cumsum(sizes).tolist()):
        fitted = fitted.fitted_to(collect(items[begin:end]))
    np.testing.assert_array_equal(fitted.centre, first.centre)
    assert fitted.scale == first.scale
    together = TokenStatistics.of(collect(items))
    assert fitted.of_documents.count == together.count
    np.testing.assert_allclose(fitted.of_documents.total, together.total, atol=1e-9)
    np.testing.assert_allclose(fitted.of_documents.moment, together.moment, atol=1e-9)


@pytest.mark.parametrize("index_type", INDEXES)
class TestIndex:
    def make(self, index_type, folder, **options):
        index = index_type(str(folder), preset="plus", k=8, show_progress=False, **options)
        return index.add_documents([str(i) for i in range(60)], list(anisotropic(60, seed=5)))

    def test_learning_from_queries_changes_no_document(self, index_type, tmp_path) -> None:
        index = self.make(index_type, tmp_path)
        before = [vectors for _, vectors in index.vectors()]
        queries = list(anisotropic(20, seed=6))
        unfitted = index(queries, k=5)
        assert not index.knows_queries
        assert index.fit_queries(queries).knows_queries
        after = [vectors for _, vectors in index.vectors()]
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b)
        assert index(queries, k=5) != unfitted

    def test_statistics_of_queries_survive_reopening_and_later_changes(
        self, index_type, tmp_path
    ) -> None:
        index = self.make(index_type, tmp_path)
        queries = list(anisotropic(20, seed=6))
        index.fit_queries(queries[:10]).fit_queries(queries[10:])
        found = index(queries, k=5)
        index.close()
        opened = index_type(str(tmp_path), show_progress=False)
        assert opened(queries, k=5) == found
        opened.add_documents(["new"], list(anisotropic(1, seed=7)))
        opened.remove_documents(["new"])
        assert opened(queries, k=5) == found

    @pytest.mark.parametrize("batch_size", [60, 9])
    def test_stand_in_statistics_are_those_of_all_documents(
        self, index_type, tmp_path, batch_size
    ) -> None:
        items = list(anisotropic(60, seed=5))
        index = index_type(str(tmp_path), preset="plus", k=8, show_progress=False)
        index.add_documents(range(20), items[:20])
        index.add_documents(range(20, 60), items[20:], batch_size=batch_size)
        index.close()
        opened = index_type(str(tmp_path), show_progress=False)
        transforms = opened._collection.codec(opened._snapshot).subspaces.transforms
        first, together = (TokenStatistics.of(collect(part)) for part in (items[:20], items))
        assert transforms.standardise.of_documents.count == together.count
        np.testing.assert_allclose(
            transforms.standardise.of_documents.moment, together.moment, atol=1e-9
        )
        np.testing.assert_allclose(transforms.standardise.centre, first.mean * 20 / 28)

    def test_contributions_add_up_to_the_score(self, index_type, tmp_path) -> None:
        index = self.make(index_type, tmp_path)
        query = next(iter(anisotropic(1, seed=8)))
        for _ in range(2):
            hits = index(query, k=4)[0]
            rows = index.contributions(query, [hit["id"] for hit in hits])
            scores = [hit["score"] for hit in hits]
            np.testing.assert_allclose(rows.sum(1), scores, rtol=1e-3, atol=1e-3)
            index.fit_queries(list(anisotropic(20, seed=6)))

    def test_queries_are_refused_by_an_index_that_is_not_standardised(
        self, index_type, tmp_path
    ) -> None:
        index = index_type(str(tmp_path), k=8, show_progress=False)
        with pytest.raises(ValueError, match="standardise=True"):
            index.fit_queries(list(anisotropic(2, seed=6)))
        assert index.generation == 0

    def test_queries_before_documents_are_refused(self, index_type, tmp_path) -> None:
        index = index_type(str(tmp_path), preset="plus", show_progress=False)
        with pytest.raises(ValueError, match="holds no documents"):
            index.fit_queries(list(anisotropic(2, seed=6)))

    def test_other_ways_of_centering_are_refused(self, index_type, tmp_path) -> None:
        with pytest.raises(ValueError, match="leave centering"):
            index_type(str(tmp_path), standardise=True, centering="both")


def agreement(found, batch: TokenBatch, queries: TokenBatch) -> float:
    """Return the share of MaxSim's ten best documents among the ten found."""
    from pylate_eigenli.scores.maxsim import maxsim_scores

    shares = [
        len({int(hit["id"]) for hit in hits} & set(top_k(scores, 10).tolist())) / 10
        for hits, scores in zip(found, maxsim_scores(queries, batch), strict=True)
    ]
    return float(np.mean(shares))


def test_standardising_agrees_with_maxsim_where_the_spectrum_is_that_of_a_real_model(
    tmp_path,
) -> None:
    batch = anisotropic(400, seed=9)
    # Queries are made of tokens of documents, blurred: each has documents that answer it.
    rng = np.random.default_rng(10)
    items = list(batch)
    chosen = [items[i][:8] for i in rng.choice(len(items), 50, replace=False)]
    blurred = [x + 0.1 * torch.from_numpy(rng.standard_normal(x.shape)).float() for x in chosen]
    queries = collect([torch.nn.functional.normalize(x, dim=-1) for x in blurred], names="query")
    ids = [str(i) for i in range(len(batch))]
    share = {}
    for preset in ("paper", "plus"):
        index = EigenLISVIndex(
            str(tmp_path), preset, preset=preset, k=16, dtype="int8", show_progress=False
        )
        index.add_documents(ids, items)
        if preset == "plus":
            index.fit_queries(list(queries))
        share[preset] = agreement(index(list(queries), k=10), batch, queries)
    assert share["plus"] > share["paper"]
    assert share["plus"] > 0.35
