from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.definition import unit_rows
from helpers.strategies import orthogonal
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli import compress
from pylate_eigenli.storage import Store
from pylate_eigenli.tokens import collect
from pylate_eigenli.vectors.packing import pack_moments, pack_subspaces
from pylate_eigenli.vectors.projection import SVProjection, TokenProjection

seeds = st.integers(0, 2**32 - 1)


def decaying(seed, n, dim, decay=0.9):
    """Vectors around a mean with variances that fall by a factor, along directions at random."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, dim)) * decay ** np.arange(dim)
    return torch.from_numpy(x @ orthogonal(rng, dim).T + rng.standard_normal(dim)).float()


def gaussian(seed, n, dim):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, dim))).float()


def approximate_scores(projection, queries, documents):
    dots = projection.transform_queries(queries) @ projection.transform_documents(documents).mT
    return dots + projection.constants(queries)[:, None]


def assert_orthonormal(rows):
    torch.testing.assert_close(rows @ rows.mT, torch.eye(len(rows)), atol=1e-5, rtol=0)


class TestDirections:
    @settings(max_examples=25, deadline=None)
    @given(seeds, st.integers(1, 40), st.integers(1, 40), st.data())
    def test_are_orthonormal_whatever_the_shape_and_the_rank(self, seed, n, dim, data):
        rank = data.draw(st.integers(0, dim))
        vectors = gaussian(seed, n, rank) @ gaussian(seed + 1, rank, dim)
        projection = SVProjection.fit(vectors, data.draw(st.integers(1, min(n, dim))))
        assert_orthonormal(projection.directions)
        assert 0 <= projection.explained <= 1

    @pytest.mark.parametrize(("n", "dim"), [(640, 600), (600, 640), (300, 300)])
    @pytest.mark.parametrize("wanted", [5, 60])
    def test_keep_nearly_all_the_variance_that_so_many_can(self, n, dim, wanted):
        vectors = decaying(0, n, dim, decay=0.995)
        projection = SVProjection.fit(vectors, wanted)
        x = vectors.double() - vectors.double().mean(0)
        variances = torch.linalg.svdvals(x).square()
        best = float(variances[:wanted].sum() / variances.sum())
        assert projection.explained == pytest.approx(best, rel=0.005)
        kept = (x @ projection.directions.double().mT).square().sum(0)
        assert float(kept.sum() / variances.sum()) == pytest.approx(projection.explained, rel=1e-5)
        assert (kept[:-1] >= kept[1:] * 0.999).all(), "not by descending variance"

    def test_the_mean_is_that_of_all_vectors_though_few_are_sampled(self):
        vectors = gaussian(0, 1000, 6) + 3
        projection = SVProjection.fit(vectors.split(64), 2, max_samples=10)
        torch.testing.assert_close(projection.mean, vectors.mean(0))

    def test_documents_all_alike_lose_nothing(self):
        vectors = torch.ones(10, 6)
        projection = SVProjection.fit(vectors, 3)
        assert projection.explained == 1
        queries = gaussian(0, 4, 6)
        scores = approximate_scores(projection, queries, vectors)
        torch.testing.assert_close(scores, queries @ vectors.mT)


class TestScores:
    @settings(max_examples=25, deadline=None)
    @given(seeds, st.integers(1, 30), st.integers(1, 60))
    def test_as_many_directions_as_dimensions_lose_nothing(self, seed, dim, more):
        documents, queries = decaying(seed, dim + more, dim, 0.8), gaussian(seed, 5, dim)
        scores = approximate_scores(SVProjection.fit(documents, dim), queries, documents)
        torch.testing.assert_close(scores, queries @ documents.mT, atol=1e-4, rtol=1e-4)

    @settings(max_examples=25, deadline=None)
    @given(seeds, st.integers(2, 20), st.integers(20, 60))
    def test_as_many_directions_as_vectors_lose_nothing_of_these(self, seed, n, dim):
        documents, queries = gaussian(seed, n, dim), gaussian(seed + 1, 5, dim)
        scores = approximate_scores(SVProjection.fit(documents, n), queries, documents)
        torch.testing.assert_close(scores, queries @ documents.mT, atol=1e-4, rtol=1e-4)

    @pytest.mark.parametrize("wanted", [4, 16, 64])
    def test_are_closer_than_those_of_a_random_projection(self, wanted):
        documents, queries = decaying(0, 400, 128, 0.97), gaussian(1, 50, 128)
        exact = queries @ documents.mT
        projection = SVProjection.fit(documents, wanted)
        error = (approximate_scores(projection, queries, documents) - exact).square().mean()
        rows = torch.from_numpy(orthogonal(np.random.default_rng(2), 128)[:wanted]).float()
        mean = documents.mean(0)
        # Scaled to be right on average, which a random projection is not of itself.
        dots = (queries @ rows.mT) @ ((documents - mean) @ rows.mT).mT * (128 / wanted)
        random_error = (dots + (queries @ mean)[:, None] - exact).square().mean()
        assert error < 0.5 * random_error

    def test_of_packed_subspaces_find_the_document_that_a_query_lies_in(self):
        rng = np.random.default_rng(0)
        subspaces = compress([unit_rows(rng, 20, 16) for _ in range(300)], 4)
        documents = pack_subspaces(subspaces.bases, subspaces.offsets, subspaces.floors.numpy())
        queries = pack_moments(collect([subspaces[i] for i in range(50)]))
        projection = SVProjection.fit(documents, 100)
        scores = approximate_scores(projection, queries, documents)
        assert scores.argmax(1).tolist() == list(range(50))


class TestLengths:
    def test_documents_outside_the_sample_are_as_long_as_those_inside(self):
        vectors = gaussian(0, 400, 100)  # no direction is better than another but for the sample
        projection = SVProjection.fit(vectors[:80], 40)
        lengths = projection.transform_documents(vectors).norm(dim=1)
        shares = lengths / (vectors - projection.mean).norm(dim=1)
        torch.testing.assert_close(shares, torch.full((400,), projection.explained**0.5))

    def test_the_mean_itself_is_projected_to_zero(self):
        projection = SVProjection.fit(gaussian(0, 20, 8), 4)
        assert projection.transform_documents(projection.mean[None]).tolist() == [[0, 0, 0, 0]]


class TestSampling:
    @settings(max_examples=25, deadline=None)
    @given(seeds, st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(4, 60))
    def test_how_vectors_are_divided_into_batches_plays_no_part(self, seed, sizes, max_samples):
        vectors = decaying(seed, sum(sizes) + 5, 10, 0.5)
        parts = torch.split(vectors, [*sizes, 5])
        one = SVProjection.fit(vectors, 3, max_samples=max_samples)
        several = SVProjection.fit(iter(parts), 3, max_samples=max_samples)
        # Directions of nearly equal variance may turn into each other: compare what they span.
        for a, b in ((one.mean, several.mean), (_projector(one), _projector(several))):
            torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)

    def test_every_vector_has_the_same_chance(self):
        # One axis per vector: the directions, as many as samples, show which ones were drawn.
        n, size, runs = 12, 4, 400
        counts = torch.zeros(n)
        for seed in range(runs):
            projection = SVProjection.fit(torch.eye(n).split(5), size, max_samples=size, seed=seed)
            x = torch.eye(n) - projection.mean
            missing = (x - x @ projection.directions.mT @ projection.directions).norm(dim=1)
            counts[missing < 1e-3] += 1
        expected = runs * size / n
        assert counts.sum() == runs * size
        assert (counts - expected).abs().max() < 5 * (expected * (1 - size / n)) ** 0.5

    def test_the_seed_decides(self):
        vectors = gaussian(0, 600, 60)
        a, b, c = (SVProjection.fit(vectors, 10, max_samples=300, seed=s) for s in (1, 1, 2))
        assert torch.equal(a.directions, b.directions)
        assert not torch.equal(a.directions, c.directions)


class TestRefusals:
    @pytest.mark.parametrize(
        ("vectors", "options", "message"),
        [
            ([], {"dim": 2}, "no vectors"),
            ([torch.zeros(0, 5)], {"dim": 2}, "dim=2 .* got 0"),
            ([torch.randn(9, 5)], {"dim": 0}, "dim must be a positive integer"),
            ([torch.randn(9, 5)], {"dim": 6}, "dim=6 is more than the 5"),
            ([torch.randn(3, 5)], {"dim": 4}, "dim=4 .* got 3"),
            ([torch.randn(9, 5)], {"dim": 4, "max_samples": 3}, "max_samples >= 4"),
            ([torch.randn(5)], {"dim": 2}, r"\(n, D\)"),
            ([torch.randn(2, 5), torch.randn(2, 4)], {"dim": 2}, r"\(n, 5\).*\(2, 4\)"),
        ],
    )
    def test_of_what_cannot_be_fitted(self, vectors, options, message):
        with pytest.raises(ValueError, match=message):
            SVProjection.fit(vectors, **options)

    def test_name_the_vector_that_is_too_long(self):
        vectors = torch.randn(20, 5)
        vectors[13] *= 1e30
        with pytest.raises(ValueError, match="vector 13 is longer than"):
            SVProjection.fit(vectors.split(4), 2)

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    def test_name_the_vector_that_is_not_finite(self, bad):
        vectors = torch.randn(20, 5)
        vectors[13, 2] = bad
        with pytest.raises(ValueError, match="vector 13 contains NaN or infinite"):
            SVProjection.fit(vectors.split(4), 2)
        projection = SVProjection.fit(vectors[:10], 2)
        with pytest.raises(ValueError, match="document 13 contains"):
            projection.transform_documents(vectors)
        with pytest.raises(ValueError, match="query 13 contains"):
            projection.transform_queries(vectors)

    def test_of_vectors_of_another_dimension(self):
        projection = SVProjection.fit(torch.randn(10, 5), 2)
        for method in (
            projection.transform_documents,
            projection.transform_queries,
            projection.constants,
        ):
            with pytest.raises(ValueError, match=r"\(n, 5\) vectors, got shape \(3, 6\)"):
                method(torch.randn(3, 6))

    def test_of_arrays_that_do_not_belong_together(self):
        arrays = SVProjection.fit(torch.randn(10, 5), 2).to_arrays()
        with pytest.raises(ValueError, match=r"\(2, 4\) .* \(5,\)"):
            SVProjection.from_arrays({**arrays, "directions": arrays["directions"][:, :4]})


class TestTokenProjection:
    @settings(max_examples=25, deadline=None)
    @given(seeds, st.integers(1, 20), st.data())
    def test_inner_products_within_its_span_stay_the_same(self, seed, d, data):
        dim = data.draw(st.integers(1, d))
        rng = np.random.default_rng(seed)
        span = orthogonal(rng, d)[:dim]
        documents = [(rng.standard_normal((n, dim)) @ span).astype(np.float32) for n in (30, 1, 9)]
        projection = TokenProjection.fit(documents, dim)
        assert projection.energy == pytest.approx(1)
        assert_orthonormal(projection.directions)
        x, y = torch.from_numpy(documents[0]), torch.from_numpy(documents[2])
        reduced = projection.transform(documents)
        torch.testing.assert_close(reduced[0] @ reduced[2].mT, x @ y.mT, atol=1e-4, rtol=1e-4)

    def test_no_other_directions_keep_more_energy(self):
        rng = np.random.default_rng(0)
        documents = [
            unit_rows(rng, 40, 12) * 0.8 ** np.arange(12, dtype=np.float32) for _ in range(9)
        ]
        projection = TokenProjection.fit(documents, 4)
        tokens = np.concatenate(documents).astype(np.float64)
        values = np.linalg.eigvalsh(tokens.T @ tokens)
        assert projection.energy == pytest.approx(values[-4:].sum() / values.sum())
        kept = sum(float(x.square().sum()) for x in projection.transform(documents))
        assert kept / (tokens**2).sum() == pytest.approx(projection.energy, rel=1e-5)

    def test_scores_of_subspaces_in_the_span_stay_the_same(self):
        rng = np.random.default_rng(0)
        span = orthogonal(rng, 20)[:8].astype(np.float32)
        documents = [unit_rows(rng, n, 8) @ span for n in (30, 12, 50)]
        query = unit_rows(rng, 6, 20)
        projection = TokenProjection.fit(documents, 8)
        (short_query,) = projection.transform(query)
        before, after = compress(documents, 5), compress(projection.transform(documents), 5)
        for i in range(3):
            expected = float((torch.from_numpy(query) @ before[i].mT).square().sum())
            found = float((short_query @ after[i].mT).square().sum())
            assert found == pytest.approx(expected, rel=1e-4)

    def test_documents_may_come_in_any_form_and_number(self):
        rng = np.random.default_rng(0)
        documents = [unit_rows(rng, 3, 6) for _ in range(700)]
        padded = np.zeros((700, 5, 6), np.float32)
        padded[:, :3] = documents
        one = TokenProjection.fit(np.concatenate(documents), 3)
        for form in (documents, iter(documents), [x.tolist() for x in documents], padded):
            other = TokenProjection.fit(form, 3)
            torch.testing.assert_close(_projector(other), _projector(one), atol=1e-5, rtol=0)
            assert other.energy == pytest.approx(one.energy)

    def test_a_batch_keeps_its_divisions(self):
        rng = np.random.default_rng(0)
        batch = collect([unit_rows(rng, n, 6) for n in (2, 5)])
        projected = TokenProjection.fit(list(batch), 3).projected(batch)
        assert (projected.dim, projected.lengths.tolist()) == (3, [2, 5])

    def test_bad_input_is_refused_by_name(self):
        rng = np.random.default_rng(0)
        documents = [unit_rows(rng, 3, 6) for _ in range(300)]
        with pytest.raises(ValueError, match="no documents"):
            TokenProjection.fit([], 2)
        with pytest.raises(ValueError, match="dim must be a positive integer"):
            TokenProjection.fit(documents, 0)
        with pytest.raises(ValueError, match="dim=7 is more than the d=6"):
            TokenProjection.fit(documents, 7)
        with pytest.raises(ValueError, match="document 300 has dimension 5, expected 6"):
            TokenProjection.fit([*documents, unit_rows(rng, 3, 5)], 2)
        documents[290][1, 1] = np.nan
        with pytest.raises(ValueError, match="document 290: token 1 contains NaN"):
            TokenProjection.fit(documents, 2)
        with pytest.raises(ValueError, match=r"\(dim, d\)"):
            TokenProjection(torch.zeros(3), 1.0)


def _projector(projection):
    return projection.directions.mT @ projection.directions


@pytest.mark.parametrize(
    "projection",
    [
        SVProjection.fit(gaussian(0, 30, 12), 5),
        TokenProjection.fit([unit_rows(np.random.default_rng(0), 30, 12)], 5),
    ],
    ids=["vectors", "tokens"],
)
def test_a_projection_survives_storage(tmp_path, projection):
    with Store(tmp_path).transaction() as transaction:
        for name, array in projection.to_arrays().items():
            transaction.set_collection(name, array)
    restored = type(projection).from_arrays(Store(tmp_path).snapshot.collection)
    assert restored.dim == projection.dim == 5
    for name, array in projection.to_arrays().items():
        assert restored.to_arrays()[name].tobytes() == array.tobytes()
