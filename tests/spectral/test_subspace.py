from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.definition import projector, spectrum, unit_rows
from helpers.strategies import documents, orthogonal
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pylate_eigenli import compress
from pylate_eigenli.spectral.subspace import solve_in_batches, subspaces_of
from pylate_eigenli.tokens import collect

DTYPES = [torch.float32, torch.float64]
# How far quantities of order 1 may be off after sums of some dozen terms.
NOISE = {torch.float32: 2e-5, torch.float64: 1e-12}
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True)
def threads():
    """Compressing leaves torch's number of threads as it is."""
    before = torch.get_num_threads()
    yield before
    after = torch.get_num_threads()
    torch.set_num_threads(before)
    assert after == before


@st.composite
def cases(draw, **options):
    """A document and a number of directions that it can be asked for."""
    document = draw(documents(**options))
    return document, draw(st.integers(1, document.tokens.shape[1]))


def rows(subspaces, i=0):
    return subspaces[i].numpy().astype(np.float64)


class TestLemmas:
    @settings(max_examples=40, deadline=None)
    @given(cases(max_dim=16, scales=(1.0,)), seeds)
    def test_three_forms_of_the_score_agree(self, case, seed):
        document, k = case
        rng = np.random.default_rng(seed)
        w = rows(compress([document.tokens], k, dtype=torch.float64))
        queries = unit_rows(rng, 5, w.shape[1]).astype(np.float64)
        by_vectors = ((queries @ w.T) ** 2).sum()
        projected = queries @ (w.T @ w)
        by_projector = (projected**2).sum()
        # The best unit vector of the subspace is the query's own projection ...
        lengths = np.linalg.norm(projected, axis=1, keepdims=True)
        best = projected / np.maximum(lengths, 1e-300)
        by_maximum = ((queries * best).sum(1) ** 2).sum()
        assert by_vectors == pytest.approx(by_projector, abs=1e-10)
        assert by_vectors == pytest.approx(by_maximum, abs=1e-10)
        # ... and no other one is better.
        other = rng.standard_normal((200, len(w))) @ w
        other /= np.linalg.norm(other, axis=1, keepdims=True)
        assert ((queries @ other.T) ** 2).max(1).sum() <= by_vectors + 1e-10

    @pytest.mark.parametrize("dtype", DTYPES)
    @settings(max_examples=50, deadline=None)
    @given(case=cases())
    def test_the_residual_is_the_sum_of_the_smaller_eigenvalues(self, case, dtype):
        document, k = case
        w = rows(compress([document.tokens], k, dtype=dtype))
        left_out = ((document.tokens - document.tokens @ w.T @ w) ** 2).sum()
        values = spectrum(document.tokens)[0]
        assert left_out == pytest.approx(values[k:].sum(), abs=NOISE[dtype] * values.sum())


class TestEigenpairs:
    @pytest.mark.parametrize("dtype", DTYPES)
    @settings(max_examples=50, deadline=None)
    @given(case=cases())
    def test_bases_are_orthonormal_eigenvectors_of_the_largest_eigenvalues(self, case, dtype):
        (tokens, rank), k = case
        subspaces = compress([tokens], k, dtype=dtype)
        w, values = rows(subspaces), subspaces.eigenvalues.numpy().astype(np.float64)
        expected = spectrum(tokens)[0]
        noise = NOISE[dtype]
        assert subspaces.bases.dtype == subspaces.eigenvalues.dtype == dtype
        assert subspaces.ranks.tolist() == [min(k, rank)]
        np.testing.assert_allclose(w @ w.T, np.eye(len(w)), atol=noise)
        np.testing.assert_allclose(values, expected[: len(w)], atol=noise * expected[0])
        np.testing.assert_allclose(tokens.T @ tokens @ w.T, w.T * values, atol=noise * expected[0])

    @pytest.mark.parametrize("dtype", DTYPES)
    @settings(max_examples=40, deadline=None)
    @given(case=cases(scales=(1.0,)))
    def test_projectors_equal_lapack_if_the_spectrum_has_a_gap(self, case, dtype):
        (tokens, rank), k = case
        values = spectrum(tokens)[0]
        gap = 1.0
        if k < rank:
            gap = (values[k - 1] - values[k]) / values[0]
        elif rank < len(values):
            gap = values[rank - 1] / values[0]
        if gap < 1e-3:
            return  # not defined well enough to be compared
        w = rows(compress([tokens], k, dtype=dtype))
        np.testing.assert_allclose(w.T @ w, projector(tokens, k), atol=NOISE[dtype] / gap)

    @pytest.mark.parametrize("d", range(1, 41))
    def test_no_dimension_is_special(self, d):
        rng = np.random.default_rng(d)
        tokens = [unit_rows(rng, m, d) for m in (1, (d + 1) // 2, 2 * d + 3)]
        for k in {1, 2, d // 2, d - 1, d} & set(range(1, d + 1)):
            subspaces = compress(tokens, k)
            assert subspaces.ranks.tolist() == [min(len(x), k) for x in tokens]
            for i, x in enumerate(tokens):
                w = rows(subspaces, i)
                energy = ((x @ w.T) ** 2).sum()
                assert energy == pytest.approx(spectrum(x)[0][:k].sum(), rel=1e-5)

    def test_one_token_spans_its_own_direction(self):
        token = np.array([[3.0, 0.0, -4.0]])
        subspaces = compress([token], k=2)
        np.testing.assert_allclose(rows(subspaces), [[-0.6, 0, 0.8]], atol=1e-6)
        np.testing.assert_allclose(subspaces.eigenvalues, [25])

    @pytest.mark.parametrize("scale", [1e-6, 1e6, 1e12, 1e18])
    def test_length_does_not_matter(self, scale):
        tokens = unit_rows(np.random.default_rng(0), 20, 8).astype(np.float64)
        tokens[:, :3] *= 3
        one, other = compress([tokens], 3), compress([scale * tokens], 3)
        np.testing.assert_allclose(rows(one), rows(other), atol=1e-5)

    def test_float64_resolves_smaller_eigenvalues(self):
        rng = np.random.default_rng(0)
        left, right = orthogonal(rng, 9), orthogonal(rng, 6)
        sizes = np.array([1, 1e-2, 1e-4, 1e-5, 1e-6, 0])
        tokens = left[:, :6] * sizes @ right.T
        subspaces = compress([tokens], 6, dtype=torch.float64)
        assert subspaces.ranks.tolist() == [5]
        np.testing.assert_allclose(np.abs(rows(subspaces) @ right), np.eye(5, 6), atol=1e-4)

    @pytest.mark.parametrize("d", [2, 4, 8, 32])
    @pytest.mark.parametrize("distinct", [1, 2])
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_rounding_errors_of_long_documents_are_no_directions(self, d, distinct, dtype):
        tokens = unit_rows(np.random.default_rng(d), distinct, d)
        lengths = (10, 100, 1000, 10000)
        subspaces = compress(
            [tokens[np.resize([0, 1], m) % distinct] for m in lengths], d, dtype=dtype
        )
        assert subspaces.ranks.tolist() == [distinct] * len(lengths)

    @pytest.mark.parametrize("tokens", [500, 8192, 20_000])
    def test_long_documents_keep_the_directions_that_float64_finds(self, tokens):
        """Most of the energy along one direction, as anisotropic models have it."""
        rng = np.random.default_rng(tokens)
        others = rng.standard_normal((tokens, 63)) / np.arange(1, 64)
        x = np.column_stack([np.full(tokens, 4.0), 0.8 * others])
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        single, double = (
            compress([x], 32, filter="ridge", dtype=dtype)
            for dtype in (torch.float32, torch.float64)
        )
        assert single.ranks.tolist() == double.ranks.tolist() == [32]
        torch.testing.assert_close(single.weights.double(), double.weights, rtol=1e-2, atol=1e-4)
        torch.testing.assert_close(single.floors.double(), double.floors, rtol=1e-2, atol=1e-4)


class TestReproducibility:
    @pytest.fixture
    def batch(self):
        rng = np.random.default_rng(0)
        ordinary = [unit_rows(rng, int(m), 48) for m in rng.integers(1, 120, 60)]
        degenerate = [orthogonal(rng, 48)[: 10 * i].repeat(2, axis=0) for i in range(1, 4)]
        return ordinary[:30] + degenerate + ordinary[30:]

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_a_document_does_not_depend_on_its_neighbours(self, batch, dtype):
        together = compress(batch, 20, dtype=dtype)
        for i in (0, 5, 29, 30, 31, 32, 33, 62):
            alone = compress([batch[i]], 20, dtype=dtype)
            assert alone.bases.numpy().tobytes() == together[i].numpy().tobytes()

    def test_order_does_not_matter(self, batch):
        forwards, backwards = compress(batch, 20), compress(batch[::-1], 20)
        for i in range(len(batch)):
            assert torch.equal(forwards[i], backwards[len(batch) - 1 - i])

    def test_the_number_of_threads_does_not_matter(self, batch, threads):
        results = []
        for n in (1, 2, 5):
            torch.set_num_threads(n)
            results.append(compress(batch, 20).bases.numpy().tobytes())
        torch.set_num_threads(threads)
        assert results[0] == results[1] == results[2]

    def test_the_form_of_embeddings_does_not_matter(self, batch):
        halves = [x.astype(np.float16) for x in batch[:20]]
        expected = compress(halves, 20)
        rows_needed = max(len(x) for x in halves)
        zeros = np.zeros((len(halves), rows_needed + 3, 48), np.float16)
        mask = np.zeros(zeros.shape[:2], bool)
        for i, x in enumerate(halves):
            zeros[i, : len(x)], mask[i, : len(x)] = x, True
        garbage = np.where(mask[..., None], zeros, np.float16(5))
        forms = {
            "float32": ([x.astype(np.float32) for x in halves], None),
            "float64 tensors": ([torch.from_numpy(x).double() for x in halves], None),
            "lists": ([x.tolist() for x in halves], None),
            "padded": (zeros, None),
            "padded tensor": (torch.from_numpy(zeros), None),
            "masked": (garbage, mask),
            "masked tensor": (torch.from_numpy(garbage), torch.from_numpy(mask)),
        }
        for form, (embeddings, given_mask) in forms.items():
            subspaces = compress(embeddings, 20, mask=given_mask)
            assert subspaces.bases.numpy().tobytes() == expected.bases.numpy().tobytes(), form
            assert subspaces.offsets.tolist() == expected.offsets.tolist(), form


class TestBatchedSolver:
    """The path for GPUs, which runs on a CPU too."""

    @settings(max_examples=30, deadline=None)
    @given(
        st.integers(1, 24),
        st.lists(st.integers(1, 70), min_size=1, max_size=12),
        st.sampled_from(DTYPES),
        st.data(),
    )
    def test_agrees_with_the_cpu(self, d, lengths, dtype, data):
        k = data.draw(st.integers(1, d))
        rng = np.random.default_rng(data.draw(seeds))
        matrices = [unit_rows(rng, m, d)[np.arange(m) % rng.integers(1, m + 1)] for m in lengths]
        for x in matrices:
            values = spectrum(x)[0]
            assume(not ((values > 1e-12 * values[0]) & (values < 1e-4 * values[0])).any())
        batch = collect(matrices, dtype=dtype)
        expected = subspaces_of(batch, k, "fill")
        tolerances = np.full(len(batch), 64 * torch.finfo(dtype).eps)
        bases, values, ranks = solve_in_batches(batch, k, tolerances)
        assert ranks.tolist() == expected.ranks.tolist()
        noise = 5 * NOISE[dtype]
        for i, (x, rank) in enumerate(zip(matrices, ranks, strict=True)):
            w = bases[i, :rank].numpy().astype(np.float64)
            found = values[i, :rank].numpy()
            begin = expected.offsets[i]
            np.testing.assert_allclose(w @ w.T, np.eye(rank), atol=noise)
            np.testing.assert_allclose(
                found, expected.eigenvalues[begin : begin + rank], atol=noise * found[0]
            )
            moment = x.T.astype(np.float64) @ x
            np.testing.assert_allclose(moment @ w.T, w.T * found, atol=noise * found[0])
            assert not bases[i, rank:].any()

    def test_signs_are_chosen_alike(self):
        rng = np.random.default_rng(0)
        matrices = [unit_rows(rng, m, 12) * np.linspace(3, 1, 12) for m in (3, 12, 40)]
        batch = collect(matrices, dtype=torch.float64)
        expected = subspaces_of(batch, 3, "fill").bases
        bases, _, _ = solve_in_batches(batch, 3, np.full(3, 1e-14))
        torch.testing.assert_close(bases.reshape(-1, 12), expected, rtol=0, atol=1e-9)


class TestShortDocuments:
    @settings(max_examples=20, deadline=None)
    @given(st.integers(2, 12), st.data())
    def test_the_floor_is_the_expectation_over_all_completions(self, d, data):
        rank = data.draw(st.integers(1, d - 1))
        k = data.draw(st.integers(rank, d))
        rng = np.random.default_rng(data.draw(seeds))
        query = unit_rows(rng, 4, d).astype(np.float64)
        subspaces = compress([unit_rows(rng, rank, d)], k, dtype=torch.float64)
        w, floor = rows(subspaces), float(subspaces.floors[0])
        inside = ((query @ w.T) ** 2).sum()
        # Complete the basis at random, many times: orthonormal directions outside of it.
        outside = rng.standard_normal((4000, d, k - rank))
        outside -= w.T @ (w @ outside)
        completions = np.linalg.qr(outside)[0]
        caught = ((query @ completions) ** 2).sum((1, 2))
        deviation = caught.std() / np.sqrt(len(caught))
        score = (1 - floor) * inside + floor * (query**2).sum()
        assert score == pytest.approx(inside + caught.mean(), abs=6 * deviation + 1e-9)

    def test_the_formula(self):
        rng = np.random.default_rng(0)
        tokens = [unit_rows(rng, m, 10) for m in (1, 3, 4, 20)]
        assert compress(tokens, 4).floors.tolist() == pytest.approx([3 / 9, 1 / 7, 0, 0])
        assert compress(tokens, 10).floors.tolist() == pytest.approx([1, 1, 1, 0])
        assert compress(tokens, 4, short_documents="truncate").floors.tolist() == [0, 0, 0, 0]

    def test_the_option_does_not_change_directions(self):
        tokens = [unit_rows(np.random.default_rng(0), m, 10) for m in (2, 20)]
        filled, truncated = compress(tokens, 5), compress(tokens, 5, short_documents="truncate")
        assert torch.equal(filled.bases, truncated.bases)
        assert filled.ranks.tolist() == [2, 5]


class TestSubspaces:
    def test_documents_are_concatenated(self):
        tokens = [unit_rows(np.random.default_rng(0), m, 6) for m in (2, 9, 1)]
        subspaces = compress(tokens, 4)
        assert len(subspaces) == 3
        assert subspaces.offsets.tolist() == [0, 2, 6, 7]
        assert [tuple(subspaces[i].shape) for i in range(3)] == [(2, 6), (4, 6), (1, 6)]
        assert subspaces.eigenvalues.shape == (7,)

    def test_accept_negative_positions(self):
        subspaces = compress([torch.eye(4)[:3], torch.eye(4)[3:]], k=2)
        assert torch.equal(subspaces[-1], subspaces[1])
        with pytest.raises(IndexError):
            subspaces[2]


class TestErrors:
    @pytest.mark.parametrize("k", [0, -1, 2.0, True, None, "3"])
    def test_k_must_be_a_positive_integer(self, k):
        with pytest.raises(ValueError, match="k must be a positive integer"):
            compress([np.eye(4)], k)

    def test_k_must_not_exceed_the_dimension(self):
        with pytest.raises(ValueError, match=r"k=5 .* d=4"):
            compress([np.eye(4)], 5)

    def test_short_documents_has_two_values(self):
        with pytest.raises(ValueError, match="got 'drop'"):
            compress([np.eye(4)], 2, short_documents="drop")

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
    def test_half_precision_is_refused(self, dtype):
        with pytest.raises(ValueError, match=f"got {dtype}"):
            compress([np.eye(4)], 2, dtype=dtype)

    def test_bad_documents_are_named(self):
        with pytest.raises(ValueError, match="document 1: token 2 contains NaN"):
            compress([np.eye(4), np.diag([1, 1, np.nan, 1])], 2)
