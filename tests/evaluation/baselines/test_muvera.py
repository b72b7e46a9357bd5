from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli.evaluation.baselines import Muvera, muvera
from pylate_eigenli.scores.maxsim import maxsim_scores
from pylate_eigenli.tokens import collect


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def items(rng, lengths, d=24):
    return [unit(rng.standard_normal((int(m), d))).astype(np.float32) for m in lengths]


def matrices(settings, dim):
    """Return the random matrices by repetition: (R, dim, hyperplanes) and (R, dim, p)."""
    generator = np.random.default_rng(settings.seed)
    normals = [
        generator.normal(size=(dim, settings.hyperplanes)) for _ in range(settings.repetitions)
    ]
    signs = generator.choice([-1, 1], (settings.repetitions, dim, settings.projection_dim))
    return normals, signs / np.sqrt(settings.projection_dim)


def reference(settings, tokens, as_document):
    """Encode one item, one token and one partition after the other."""
    tokens = np.asarray(tokens, np.float64)
    if settings.centered:
        tokens = tokens - tokens.mean(0)
    encoded = []
    for normals, projection in zip(*matrices(settings, tokens.shape[1]), strict=True):
        sides = [tuple(int(x @ normal > 0) for normal in normals.T) for x in tokens]
        for partition in range(2**settings.hyperplanes):
            corner = tuple(partition >> i & 1 for i in range(settings.hyperplanes))
            members = [x for x, side in zip(tokens, sides, strict=True) if side == corner]
            if not as_document:
                vector = sum(members, np.zeros(tokens.shape[1])) / settings.repetitions
            elif members:
                vector = sum(members) / len(members)
            else:
                wrong = [sum(a != b for a, b in zip(side, corner, strict=True)) for side in sides]
                vector = tokens[wrong.index(min(wrong))]
            encoded.append(vector @ projection)
    return np.concatenate(encoded)


SETTINGS = st.builds(
    Muvera,
    repetitions=st.integers(1, 4),
    hyperplanes=st.integers(1, 6),
    projection_dim=st.integers(1, 23),
    centered=st.booleans(),
    seed=st.integers(0, 1000),
)


class TestEncodings:
    @settings(max_examples=25, deadline=None)
    @given(SETTINGS, st.lists(st.integers(1, 30), min_size=1, max_size=5))
    def test_equal_the_definition(self, encoder, lengths):
        batch = items(np.random.default_rng(0), lengths)
        for encode, as_document in (
            (encoder.encode_documents, True),
            (encoder.encode_queries, False),
        ):
            encoded = encode(collect(batch))
            assert encoded.shape == (len(batch), encoder.dim)
            assert encoded.dtype == np.float32
            expected = np.stack([reference(encoder, x, as_document) for x in batch])
            np.testing.assert_allclose(encoded, expected, atol=1e-5)

    def test_have_the_usual_dimension_by_default(self):
        assert Muvera().dim == 20 * 32 * 16 == 10240

    def test_do_not_depend_on_what_is_encoded_beside(self, monkeypatch):
        rng = np.random.default_rng(1)
        documents, encoder = items(rng, rng.integers(1, 50, 30)), Muvera()
        expected = encoder.encode_documents(collect(documents))
        monkeypatch.setattr(muvera, "_TOKENS_AT_ONCE", 70)
        actual = encoder.encode_documents(collect(documents[::-1]))[::-1]
        np.testing.assert_allclose(actual, expected, atol=1e-6)

    def test_without_projection_the_tokens_themselves_are_kept(self):
        (token,) = items(np.random.default_rng(2), [1])
        encoder = Muvera(repetitions=2, hyperplanes=2, projection_dim=24)
        encoded = encoder.encode_documents(collect([token])).reshape(-1, 24)
        np.testing.assert_array_equal(encoded, np.tile(token, (8, 1)))

    def test_double_precision_and_padding_change_nothing(self):
        (document,) = items(np.random.default_rng(3), [10])
        padded = np.zeros((1, 15, 24), np.float32)
        padded[0, 2:12] = document
        for centered in (False, True):
            encoder = Muvera(centered=centered)
            expected = encoder.encode_documents(collect([document]))
            for batch in (collect(padded), collect([document], dtype=torch.float64)):
                np.testing.assert_array_equal(encoder.encode_documents(batch), expected)

    def test_seeds_make_a_difference(self):
        batch = collect(items(np.random.default_rng(4), [10]))
        first, other = (Muvera(seed=seed).encode_documents(batch) for seed in (1, 2))
        assert not np.allclose(first, other)


class TestCentering:
    def test_makes_a_common_component_disappear(self):
        rng = np.random.default_rng(5)
        documents = items(rng, [12, 20])
        shifted = [x + 3 * unit(rng.standard_normal(24)) for x in documents]
        encoder = Muvera(centered=True)
        expected = encoder.encode_documents(collect(documents))
        actual = encoder.encode_documents(collect(shifted))
        np.testing.assert_allclose(actual, expected, atol=1e-5)

    def test_leaves_nothing_of_a_single_token(self):
        batch = collect(items(np.random.default_rng(6), [1]))
        assert not Muvera(centered=True).encode_documents(batch).any()
        assert not Muvera(centered=True).encode_queries(batch).any()

    def test_does_not_renormalise(self):
        (document,) = items(np.random.default_rng(7), [9])
        narrow = unit(10 * np.eye(24)[0] + document).astype(np.float32)
        centered = narrow - narrow.mean(0)
        encoder = Muvera(centered=True)
        actual = encoder.encode_documents(collect([narrow]))
        expected = Muvera().encode_documents(collect([centered]))
        np.testing.assert_allclose(actual, expected, atol=1e-5)
        assert np.abs(actual).max() < 0.2


class TestInnerProducts:
    def test_are_maxsim_for_single_token_documents_without_projection(self):
        rng = np.random.default_rng(8)
        queries, documents = collect(items(rng, [7, 3])), collect(items(rng, [1] * 20))
        encoder = Muvera(projection_dim=24)
        scores = encoder.encode_queries(queries) @ encoder.encode_documents(documents).T
        np.testing.assert_allclose(scores, maxsim_scores(queries, documents), atol=1e-5)

    def test_are_unbiased_by_the_projection(self):
        # Single-token documents leave the projection as the only source of error: its variance is
        # at most 2 |q|^2 |d|^2 / p per repetition.
        rng = np.random.default_rng(9)
        queries, documents = collect(items(rng, [1] * 40)), collect(items(rng, [1] * 40))
        encoder = Muvera(repetitions=20, projection_dim=16)
        scores = encoder.encode_queries(queries) @ encoder.encode_documents(documents).T
        errors = scores - maxsim_scores(queries, documents)
        deviation = np.sqrt(2 / (16 * 20))
        assert errors.std() < deviation
        # Pairs share queries, documents and projections; they count for 40 independent ones.
        assert abs(errors.mean()) < 4 * deviation / np.sqrt(40)

    def test_approximate_maxsim_the_better_the_more_is_repeated(self):
        # Documents hold noisy copies of some of the query's tokens among others.
        rng = np.random.default_rng(10)
        (query,) = items(rng, [16], d=64)
        documents = []
        for copies in np.repeat(np.arange(17), 6):
            noise = unit(rng.standard_normal((copies, 64)))
            (others,) = items(rng, [24 - copies], d=64)
            documents.append(np.concatenate([unit(query[:copies] + 0.3 * noise), others]))
        queries, documents = collect([query]), collect(documents)
        exact = maxsim_scores(queries, documents)[0]

        def agreement(**options):
            correlations = []
            for seed in range(5):
                encoder = Muvera(**options, seed=seed)
                scores = encoder.encode_queries(queries) @ encoder.encode_documents(documents).T
                correlations.append(np.corrcoef(scores[0], exact)[0, 1])
            return np.mean(correlations)

        few, default = agreement(repetitions=1), agreement()
        assert few < default
        assert default > 0.95


class TestSettings:
    @pytest.mark.parametrize("name", ["repetitions", "hyperplanes", "projection_dim"])
    @pytest.mark.parametrize("value", [0, -1, 1.5])
    def test_impossible_numbers_are_refused(self, name, value):
        with pytest.raises(ValueError, match=f"{name} must be a positive integer"):
            Muvera(**{name: value})

    def test_too_many_partitions_are_refused(self):
        with pytest.raises(ValueError, match="too many partitions"):
            Muvera(hyperplanes=17)

    def test_projections_to_more_dimensions_are_refused(self):
        with pytest.raises(ValueError, match=r"projection_dim=16 is larger than .* 8"):
            Muvera().encode_documents(collect([np.eye(8)]))


class TestBesideFastembed:
    """What `muvera` says of ``fastembed.postprocess.Muvera``."""

    @pytest.fixture
    def theirs(self):
        reason = "fastembed, whose MUVERA is compared with, is not installed: pip install fastembed"
        postprocess = pytest.importorskip("fastembed.postprocess", reason=reason)
        return postprocess.Muvera(dim=24, random_seed=5)

    ours = Muvera(seed=5)
    lengths = (1, 2, 5, 20, 60, 180)

    def test_queries_are_theirs_divided_by_the_repetitions(self, theirs):
        queries = items(np.random.default_rng(11), self.lengths)
        expected = np.stack([theirs.process_query(x) for x in queries]) / 20
        np.testing.assert_allclose(self.ours.encode_queries(collect(queries)), expected, atol=1e-5)

    def test_documents_are_theirs_but_for_equally_near_tokens(self, theirs):
        documents = items(np.random.default_rng(12), self.lengths)
        expected = np.stack([theirs.process_document(x) for x in documents])
        actual = self.ours.encode_documents(collect(documents))
        shape = (len(documents), 20, 32, 16)
        same = np.isclose(actual, expected, atol=1e-5).reshape(shape).all(-1)
        differing = np.argwhere(~same)
        assert len(differing)
        for i, repetition, partition in differing:
            codes = theirs.simhash_projections[repetition].get_cluster_ids(documents[i])
            distances = np.array([int(code ^ partition).bit_count() for code in codes])
            nearest = np.unique(codes[distances == distances.min()])
            assert distances.min() > 0, "only empty partitions may differ"
            assert len(nearest) > 1, "and only if several partitions are nearest"
        assert same[0].all(), "a single token leaves no choice"
