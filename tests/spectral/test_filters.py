"""Spectral filters: weights of directions, carried through scores, vectors and indexes."""

import numpy as np
import pytest
import torch
from helpers.definition import spectrum, unit_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli import EigenLIIndex, EigenLISVIndex, compress, rerank
from pylate_eigenli.indexes.settings import SVSettings
from pylate_eigenli.spectral.filters import Energy, Hard, Ridge, Soft, as_filter
from pylate_eigenli.tokens import collect
from pylate_eigenli.vectors.packing import pack_subspaces, unpack
from pylate_eigenli.vectors.soft import soft_vectors

D = 12


def matrices(subspaces):
    """The documents' matrices F. Shape: (n, d, d)."""
    packed = pack_subspaces(subspaces.rows, subspaces.offsets, subspaces.floors.numpy())
    return unpack(packed).double()


def moment(tokens):
    x = torch.from_numpy(tokens).double()
    return x.mT @ x / x.square().sum()


class TestNames:
    @pytest.mark.parametrize(
        "name", ["hard", "soft", "soft(0.01)", "ridge", "ridge(0.5)", "energy(0.75)"]
    )
    def test_round_trip(self, name):
        assert str(as_filter(name)) == name

    @pytest.mark.parametrize("name", ["", "hard(1)", "soft(x)", "softer", "energy(0.9", "soft()"])
    def test_unknown_names_are_refused(self, name):
        with pytest.raises(ValueError, match="filter must be hard, soft"):
            as_filter(name)

    @pytest.mark.parametrize(
        "name", ["soft(0)", "soft(-1)", "soft(inf)", "ridge(0)", "energy(0)", "energy(2)"]
    )
    def test_numbers_out_of_range_are_refused(self, name):
        with pytest.raises(ValueError, match="must be"):
            as_filter(name)

    def test_filter_objects_are_accepted(self):
        assert as_filter(Soft(0.5)) == Soft(0.5)
        with pytest.raises(TypeError, match="3"):
            as_filter(3)


class TestHard:
    @settings(max_examples=40, deadline=None)
    @given(st.integers(1, 30), st.integers(1, D), st.integers(0, 99))
    def test_equals_the_paper_exactly(self, tokens, k, seed):
        subspaces = compress([unit_rows(np.random.default_rng(seed), tokens, D)], k)
        assert (subspaces.weights == 1).all()
        assert torch.equal(subspaces.rows, subspaces.bases)


class TestSoft:
    @settings(max_examples=40, deadline=None)
    @given(st.integers(1, 30), st.sampled_from([None, 0.01, 0.3]), st.integers(0, 99))
    def test_with_all_directions_is_a_function_of_the_moment(self, tokens, tau, seed):
        document = unit_rows(np.random.default_rng(seed), tokens, D)
        t = tau or 1 / D
        m = moment(document)
        expected = m @ torch.linalg.inv(m + t * torch.eye(D))
        got = matrices(compress([document], D, filter=Soft(tau)))[0]
        torch.testing.assert_close(got, expected, atol=2e-5, rtol=0)

    def test_gives_other_directions_the_weight_of_their_mean_energy(self):
        document = unit_rows(np.random.default_rng(0), 40, D)
        subspaces = compress([document], 4, filter="soft")
        left = (1 - float(subspaces.eigenvalues.sum()) / 40) / (D - 4)
        assert float(subspaces.floors[0]) == pytest.approx(left / (left + 1 / D), rel=1e-4)
        values = torch.linalg.eigvalsh(matrices(subspaces))[0]
        torch.testing.assert_close(
            values[: D - 4], subspaces.floors.double().expand(D - 4), atol=1e-5, rtol=0
        )

    def test_truncate_gives_other_directions_no_weight(self):
        document = unit_rows(np.random.default_rng(0), 40, D)
        values = torch.linalg.eigvalsh(
            matrices(compress([document], 4, filter="soft", short_documents="truncate"))
        )[0]
        assert values[: D - 4].abs().max() < 1e-5

    def test_gives_short_documents_no_floor(self):
        assert (
            compress([unit_rows(np.random.default_rng(0), 2, D)], 4, filter="soft").floors[0] == 0
        )


class TestRidge:
    @settings(max_examples=40, deadline=None)
    @given(st.integers(1, 30), st.sampled_from([0.5, 1.0, 3.0]), st.integers(0, 99))
    def test_regularises_the_moment_by_a_number_of_unit_tokens(self, tokens, t, seed):
        document = unit_rows(np.random.default_rng(seed), tokens, D)
        m = tokens * moment(document)
        expected = m @ torch.linalg.inv(m + t * torch.eye(D))
        got = matrices(compress([document], D, filter=Ridge(t)))[0]
        torch.testing.assert_close(got, expected, atol=2e-5, rtol=0)

    def test_longer_tokens_count_as_more_of_them(self):
        document = unit_rows(np.random.default_rng(0), 20, D)
        repeated, longer = (
            matrices(compress([x], 4, filter="ridge"))
            for x in (np.repeat(document, 4, axis=0), 2 * document)
        )
        torch.testing.assert_close(repeated, longer, atol=1e-5, rtol=0)

    @pytest.mark.parametrize("scale", [1e-3, 7.0, 1e3])
    def test_does_not_depend_on_the_unit_of_tokens_and_threshold(self, scale):
        document = unit_rows(np.random.default_rng(0), 20, D)
        one = matrices(compress([document], 4, filter=Ridge(2.0)))
        other = matrices(compress([scale * document], 4, filter=Ridge(2.0 * scale**2)))
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)

    def test_is_the_same_energy_for_every_document(self):
        rng = np.random.default_rng(0)
        batch = collect([scale * unit_rows(rng, n, D) for n, scale in [(3, 1), (40, 0.1), (9, 5)]])
        np.testing.assert_allclose(Ridge(2.0).thresholds(batch) * batch.energies(), 2.0)

    def test_gives_a_single_token_one_half(self):
        weights = compress([np.eye(D, dtype=np.float32)[:5]], 5, filter="ridge").weights
        torch.testing.assert_close(weights, torch.full((5,), 0.5))


class TestEnergy:
    @settings(max_examples=40, deadline=None)
    @given(st.integers(1, 30), st.floats(0.05, 1.0), st.integers(0, 99))
    def test_keeps_the_fewest_directions_that_hold_the_share(self, tokens, share, seed):
        document = unit_rows(np.random.default_rng(seed), tokens, D)
        subspaces = compress([document], D, filter=Energy(share))
        held = np.cumsum(subspaces.eigenvalues.double().numpy()) / tokens
        assert held[-1] >= share - 1e-5
        assert len(held) == 1 or held[-2] < share

    def test_at_one_is_hard(self):
        document = unit_rows(np.random.default_rng(1), 40, D)
        ours, hard = (compress([document], 5, filter=f) for f in (Energy(1.0), Hard()))
        assert torch.equal(ours.rows, hard.rows)


@pytest.mark.parametrize("filter", ["hard", "soft", "ridge", "energy(0.6)"])
class TestEveryFilter:
    """One query, all ways to score it."""

    @pytest.fixture
    def documents(self):
        rng = np.random.default_rng(3)
        return [unit_rows(rng, int(rng.integers(1, 30)), D) for _ in range(30)]

    @pytest.fixture
    def query(self):
        return unit_rows(np.random.default_rng(4), 5, D)

    @pytest.fixture
    def expected(self, documents, query, filter):
        f = matrices(compress(documents, 4, filter=filter))
        q = torch.from_numpy(query).double()
        return torch.einsum("ij,njk,ik->n", q, f, q).numpy()

    @pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 2e-3)])
    def test_equals_the_score_of_the_index(
        self, tmp_path, documents, query, expected, filter, dtype, tolerance
    ):
        index = EigenLIIndex(str(tmp_path), k=4, filter=filter, dtype=dtype, show_progress=False)
        index.add_documents(range(30), documents)
        got = {hit["id"]: hit["score"] for hit in index(query, k=30)[0]}
        np.testing.assert_allclose([got[i] for i in range(30)], expected, rtol=tolerance)

    @pytest.mark.parametrize("dtype", ["int8"])
    def test_survives_rounding_to_bytes(self, tmp_path, documents, query, expected, filter, dtype):
        index = EigenLIIndex(str(tmp_path), k=4, filter=filter, dtype=dtype, show_progress=False)
        index.add_documents(range(30), documents)
        got = {hit["id"]: hit["score"] for hit in index(query, k=30)[0]}
        np.testing.assert_allclose([got[i] for i in range(30)], expected, atol=0.05)

    def test_equals_the_score_of_the_single_vector(
        self, tmp_path, documents, query, expected, filter
    ):
        index = EigenLISVIndex(
            str(tmp_path),
            k=4,
            filter=filter,
            dtype="float32",
            keep_bases=True,
            show_progress=False,
        )
        index.add_documents(range(30), documents)
        for stage, tolerance in (("none", 1e-5), ("eigenli", 2e-3)):
            got = {hit["id"]: hit["score"] for hit in index(query, k=30, rerank=stage)[0]}
            np.testing.assert_allclose([got[i] for i in range(30)], expected, rtol=tolerance)

    def test_equals_the_score_of_rerank(self, documents, query, expected, filter):
        (results,) = rerank([list(range(30))], [query], [documents], k=4, filter=filter)
        got = {hit["id"]: hit["score"] for hit in results}
        np.testing.assert_allclose([got[i] for i in range(30)], expected, rtol=1e-5)

    def test_is_stored_in_the_index(self, tmp_path, documents, filter):
        index = EigenLIIndex(str(tmp_path), k=4, filter=filter, show_progress=False)
        index.add_documents(range(30), documents)
        assert EigenLIIndex(str(tmp_path)).settings.filter == filter
        with pytest.raises(ValueError, match="was made with filter"):
            EigenLIIndex(str(tmp_path), filter="soft(0.123)")


class TestPresets:
    def test_complete_the_given_settings(self, tmp_path):
        plus = EigenLIIndex(str(tmp_path), "plus", preset="plus", idf=0.1).settings
        assert (plus.standardise, plus.idf, plus.background) == (True, 0.1, 0.75)
        paper = EigenLISVIndex(str(tmp_path), "paper", preset="paper").settings
        assert paper == SVSettings()
        assert EigenLISVIndex(str(tmp_path), "default").settings == SVSettings(auto=True)

    def test_unknown_presets_are_refused(self, tmp_path):
        with pytest.raises(ValueError, match="preset must be one of auto, plus, paper"):
            EigenLIIndex(str(tmp_path), preset="best")


class TestSoftVectors:
    """The way without eigenvectors."""

    def test_are_used_by_an_index_without_bases(self, tmp_path):
        rng = np.random.default_rng(5)
        documents = [unit_rows(rng, n, D) for n in (1, 3, 12, 40)]
        query = unit_rows(rng, 4, D)
        index = EigenLISVIndex(
            str(tmp_path), k=2, filter="soft", dtype="float32", show_progress=False
        )
        index.add_documents(range(4), documents)
        got = {hit["id"]: hit["score"] for hit in index(query)[0]}
        # All directions count, whatever k.
        f = matrices(compress(documents, D, filter="soft"))
        q = torch.from_numpy(query).double()
        expected = torch.einsum("ij,njk,ik->n", q, f, q).numpy()
        np.testing.assert_allclose([got[i] for i in range(4)], expected, rtol=1e-4)

    @pytest.mark.parametrize("tau", [1e-7, 1e-4, 1e-3, 0.5 / D, 1 / D, 1.0, 100.0])
    def test_equal_the_filter_for_every_tau_and_spectrum(self, tau):
        rng = np.random.default_rng(6)
        documents = [unit_rows(rng, n, D) for n in (1, 2, 5, D - 1, D, D + 1, 200)]
        documents += [np.repeat(unit_rows(rng, 1, D), 1000, 0), unit_rows(rng, 99, D) + 5]
        got = unpack(soft_vectors(collect(documents), np.full(len(documents), tau))).double()
        for matrix, document in zip(got, documents, strict=True):
            values, w = spectrum(document)
            shares = np.maximum(values, 0) / values.sum()
            expected = (w.T * (shares / (shares + tau))) @ w
            np.testing.assert_allclose(matrix, expected, atol=2e-5)

    @pytest.mark.parametrize("scale", [1e-20, 1e-12, 1e15, 1e18])
    def test_does_not_depend_on_the_length_of_tokens(self, scale):
        x = unit_rows(np.random.default_rng(7), 30, D)
        small, large = soft_vectors(collect([x, x * scale]), np.full(2, 1 / D))
        torch.testing.assert_close(small, large, atol=1e-6, rtol=0)
