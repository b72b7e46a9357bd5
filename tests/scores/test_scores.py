from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from helpers.definition import score
from helpers.tiny_model import save_bert, tiny_colbert
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli import EigenLIScores, compress
from pylate_eigenli.scores.scores import (
    eigenli_kd_scores,
    eigenli_scores,
    eigenli_scores_pairwise,
    eigenli_token_scores,
)

seeds = st.integers(0, 2**32 - 1)


def tokens(seed, *shape):
    return torch.nn.functional.normalize(
        torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)), dim=-1
    )


def orthonormal(seed, *shape):
    """Orthonormal bases. Shape: (..., k, d)."""
    x = torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))
    return torch.linalg.qr(x.mT)[0].mT


def plain(query, rows):
    return sum(float(q @ w) ** 2 for q in query for w in rows)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Threads that wait for each other take longer than products as small as these."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory, pylate):
    folder = tmp_path_factory.mktemp("model")
    save_bert(folder)
    model = tiny_colbert(folder, dim=8)
    return model, copy.deepcopy(model.state_dict())


class TestScoresOfBases:
    @settings(max_examples=20, deadline=None)
    @given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), seeds)
    def test_every_query_is_scored_against_every_document(self, queries, documents, k, seed):
        q, w = tokens(seed, queries, 3, 6), orthonormal(seed, documents, k, 6)
        expected = [[plain(query, rows) for rows in w] for query in q]
        torch.testing.assert_close(eigenli_scores(q, w), torch.tensor(expected).double())

    def test_pairs_are_the_diagonal(self):
        q, w = tokens(0, 5, 3, 6), orthonormal(1, 5, 2, 6)
        torch.testing.assert_close(eigenli_scores_pairwise(q, w), eigenli_scores(q, w).diagonal())

    def test_candidates_are_scored_against_their_own_query(self):
        q, w = tokens(0, 4, 3, 6), orthonormal(1, 4, 5, 2, 6)
        expected = torch.stack([eigenli_scores(q[i : i + 1], w[i])[0] for i in range(4)])
        torch.testing.assert_close(eigenli_kd_scores(q, w), expected)

    def test_shapes_equal_pylate(self, pylate):
        scores = pylate.scores
        q, w = tokens(0, 4, 3, 6), orthonormal(1, 4, 2, 6)
        groups = orthonormal(2, 4, 5, 2, 6)
        assert eigenli_scores(q, w).shape == scores.colbert_scores(q, w).shape
        assert eigenli_scores_pairwise(q, w).shape == scores.colbert_scores_pairwise(q, w).shape
        assert eigenli_kd_scores(q, groups).shape == scores.colbert_kd_scores(q, groups).shape

    @pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
    def test_masked_rows_do_not_count(self, dtype):
        q, w, groups = tokens(0, 2, 3, 6), orthonormal(1, 3, 4, 6), orthonormal(2, 2, 3, 4, 6)
        queries_mask = torch.tensor([[1, 1, 0], [1, 0, 0]]).to(dtype)
        rows_mask = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 1]]).to(dtype)
        kept_q = [x[m.bool()] for x, m in zip(q, queries_mask, strict=True)]
        kept_w = [x[m.bool()] for x, m in zip(w, rows_mask, strict=True)]
        torch.testing.assert_close(
            eigenli_scores(q, w, queries_mask, rows_mask), eigenli_scores(kept_q, kept_w)
        )
        torch.testing.assert_close(
            eigenli_scores_pairwise(q, w[:2], queries_mask, rows_mask[:2]),
            eigenli_scores_pairwise(kept_q, kept_w[:2]),
        )
        got = eigenli_kd_scores(q, groups, queries_mask, rows_mask.expand(2, 3, 4))
        for i in range(2):
            kept = [x[m.bool()] for x, m in zip(groups[i], rows_mask, strict=True)]
            torch.testing.assert_close(got[i], eigenli_scores([kept_q[i]], kept)[0])

    def test_lists_of_different_lengths(self):
        q = [tokens(0, n, 6) for n in (1, 4, 2)]
        w = [orthonormal(1, k, 6) for k in (3, 1, 6)]
        expected = torch.tensor([[plain(a, b) for b in w] for a in q]).double()
        torch.testing.assert_close(eigenli_scores(q, w), expected)
        torch.testing.assert_close(eigenli_scores_pairwise(q, w), expected.diagonal())
        arrays = eigenli_scores([x.numpy() for x in q], [x.numpy() for x in w])
        torch.testing.assert_close(arrays, expected)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_is_summed_in_float32(self, dtype):
        q, w = tokens(0, 2, 300, 6).to(dtype), orthonormal(1, 3, 4, 6).to(dtype)
        got = eigenli_scores(q, w)
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, eigenli_scores(q.double(), w.double()).float())

    def test_arrays_of_any_layout_are_accepted(self):
        q, w = tokens(0, 2, 3, 6).numpy(), orthonormal(1, 3, 4, 6).numpy()
        expected = eigenli_scores(q[::-1].copy(), w)
        w.flags.writeable = False
        torch.testing.assert_close(eigenli_scores(q[::-1], w), expected)

    def test_autocast_does_not_round_scores(self):
        q, w = tokens(0, 2, 30, 6).float(), orthonormal(1, 2, 4, 6).float()
        functions = [
            lambda: eigenli_scores(q, w),
            lambda: eigenli_scores_pairwise(q, w),
            lambda: eigenli_kd_scores(q, w[:, None]),
            lambda: EigenLIScores(k=3)(q, w[:, None]),
            lambda: EigenLIScores(k=3, distillation=True)(q, w[:, None]),
            lambda: EigenLIScores(k=3)(q, w),
        ]
        for function in functions:
            expected = function()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                torch.testing.assert_close(function(), expected)

    @pytest.mark.parametrize(
        ("score", "queries", "documents", "masks", "message"),
        [
            (eigenli_scores, (3, 2, 6), (4, 2, 5), {}, "queries have dimension 6, but .* 5"),
            (eigenli_scores, (2, 6), (4, 2, 6), {}, "queries_embeddings must be 3-D"),
            (eigenli_scores, (3, 2, 6), (2, 6), {}, "documents_bases must be 3-D"),
            (eigenli_scores, (3, 2, 6), (4, 1, 2, 6), {}, "documents_bases must be 3-D"),
            (eigenli_scores_pairwise, (3, 2, 6), (3, 2, 5), {}, "queries have dimension 6"),
            (eigenli_kd_scores, (3, 2, 6), (3, 2, 6), {}, "documents_bases must be 4-D"),
            (eigenli_kd_scores, (3, 2, 6), (2, 4, 2, 6), {}, "3 queries, but candidates of 2"),
            (eigenli_kd_scores, (3, 2, 6), (3, 4, 2, 5), {}, "queries have dimension 6"),
            (eigenli_scores, (3, 2, 6), (4, 2, 6), {"queries_mask": (3, 3)}, "their mask"),
            (eigenli_scores, (3, 2, 6), (4, 2, 6), {"documents_mask": (4,)}, "their mask"),
            (eigenli_kd_scores, (3, 2, 6), (3, 4, 2, 6), {"documents_mask": (3, 2)}, "their mask"),
        ],
    )
    def test_wrong_shapes_are_named(self, score, queries, documents, masks, message):
        masks = {name: torch.ones(shape) for name, shape in masks.items()}
        with pytest.raises(ValueError, match=message):
            score(torch.ones(queries), torch.ones(documents), **masks)

    def test_lists_of_different_dimensions_are_named(self):
        with pytest.raises(ValueError, match=r"of one d, got \(2, 5\), \(2, 6\)"):
            eigenli_scores([torch.ones(2, 6), torch.ones(2, 5)], torch.ones(1, 2, 6))

    def test_pairs_need_equal_numbers(self):
        with pytest.raises(ValueError, match="3 queries cannot be paired with 2 documents"):
            eigenli_scores_pairwise(tokens(0, 3, 2, 6), orthonormal(0, 2, 2, 6))


class TestScoresOfTokens:
    """The score function for evaluators."""

    @pytest.mark.parametrize("short_documents", ["fill", "truncate"])
    def test_equal_the_definition(self, short_documents):
        queries = [tokens(0, n, 8).float() for n in (1, 4)]
        documents = [tokens(1, n, 8).float() for n in (2, 30, 5)]
        got = eigenli_token_scores(queries, documents, k=4, short_documents=short_documents)
        expected = [[score(q, d, 4, short_documents) for d in documents] for q in queries]
        torch.testing.assert_close(got, torch.tensor(expected), atol=1e-5, rtol=1e-5)
        padded = torch.nn.utils.rnn.pad_sequence(queries, batch_first=True)
        again = eigenli_token_scores(padded, documents, k=4, short_documents=short_documents)
        torch.testing.assert_close(again, got)

    def test_queries_of_another_dimension_are_refused(self):
        with pytest.raises(ValueError, match="query 0 has dimension 6, expected 8"):
            eigenli_token_scores(tokens(0, 1, 2, 6), tokens(1, 1, 9, 8), k=2)


class TestEigenLIScores:
    """The scorer for training, which takes token embeddings."""

    def test_layout_equals_colbert_scores(self, pylate):
        q, d = tokens(0, 3, 4, 8), tokens(1, 3, 2, 10, 8)
        assert EigenLIScores(k=3)(q, d).shape == pylate.scores.ColBERTScores()(q, d).shape
        got = EigenLIScores(k=3, distillation=True)(q, d)
        assert got.shape == pylate.scores.colbert_kd_scores(q, d).shape

    def test_groups_follow_each_other(self):
        q, d = tokens(0, 3, 4, 8), tokens(1, 3, 2, 10, 8)
        metric = EigenLIScores(k=3)
        got = metric(q, d)
        assert got.shape == (3, 6)
        for i in range(3):
            for group in range(3):
                for slot in range(2):
                    alone = metric(q[i : i + 1], d[group : group + 1, slot : slot + 1])
                    torch.testing.assert_close(got[i, group * 2 + slot], alone[0, 0])

    def test_distillation_scores_each_query_against_its_own_group(self):
        q, d = tokens(0, 3, 4, 8), tokens(1, 3, 5, 10, 8)
        everything = EigenLIScores(k=3)(q, d)
        got = EigenLIScores(k=3, distillation=True)(q, d)
        assert got.shape == (3, 5)
        for i in range(3):
            torch.testing.assert_close(got[i], everything[i, i * 5 : i * 5 + 5])

    @pytest.mark.parametrize("preset", ["paper", "plus"])
    def test_documents_without_groups_are_paired_with_their_queries(self, preset):
        q, d = tokens(0, 3, 4, 8), tokens(1, 3, 10, 8)
        metric = EigenLIScores(k=3, preset=preset)
        masks = torch.arange(4) < torch.tensor([[2], [4], [1]]), torch.arange(10) < 7
        masks = masks[0], masks[1].expand(3, 10)
        expected = metric(q, d[:, None], masks[0], masks[1][:, None]).diagonal()
        torch.testing.assert_close(
            metric(q, d, queries_mask=masks[0], documents_mask=masks[1]), expected
        )

    @pytest.mark.parametrize("distillation", [False, True])
    def test_masked_tokens_do_not_count(self, distillation):
        q, d = tokens(0, 2, 4, 8), tokens(1, 2, 2, 10, 8)
        queries_mask = torch.arange(4) < torch.tensor([[2], [4]])
        documents_mask = torch.arange(10) < torch.tensor([[[3], [10]], [[7], [1]]])
        metric = EigenLIScores(k=3, distillation=distillation)
        expected = metric(q * queries_mask[..., None], d * documents_mask[..., None])
        torch.testing.assert_close(metric(q, d, queries_mask, documents_mask), expected)
        garbage = torch.where(documents_mask[..., None], d, torch.tensor(7.0).double())
        torch.testing.assert_close(metric(q, garbage, queries_mask, documents_mask), expected)

    @settings(max_examples=20, deadline=None)
    @given(st.integers(1, 7), st.integers(1, 30), seeds)
    def test_tends_to_the_score_of_the_index_as_sharpness_grows(self, k, length, seed):
        query, document = tokens(seed, 1, 4, 8), tokens(seed + 1, 1, 1, length, 8)
        # Steps of a factor 2 in the spectrum make the cut at k a clear one.
        document = document * 2.0 ** -torch.arange(8)
        smooth = EigenLIScores(k=k, sharpness=600.0)(query, document)
        subspaces = compress([document[0, 0]], k, dtype=torch.float64)
        values = subspaces.eigenvalues
        if values[-1] < 1e-2 * values.sum():
            return  # below the floor under which the smooth projector sees no direction
        hard = score(query[0], document[0, 0], k)
        assert smooth.item() == pytest.approx(hard, abs=1e-3)

    def test_the_order_of_tokens_does_not_matter(self):
        q, d = tokens(0, 2, 4, 8), tokens(1, 2, 2, 10, 8)
        metric = EigenLIScores(k=3)
        permuted = metric(q[:, [2, 0, 3, 1]], d[:, :, torch.randperm(10)])
        torch.testing.assert_close(permuted, metric(q, d))

    @pytest.mark.parametrize("length", [1, 2, 4, 9])
    @pytest.mark.parametrize("k", [1, 3, 4])
    @pytest.mark.parametrize("distillation", [False, True])
    def test_gradients_are_the_derivatives(self, length, k, distillation):
        q = tokens(0, 2, 3, 4).requires_grad_()
        d = tokens(1, 2, 2, length, 4).requires_grad_()
        metric = EigenLIScores(k=k, distillation=distillation)
        assert torch.autograd.gradcheck(metric, (q, d), fast_mode=True)

    def test_gradients_survive_equal_eigenvalues(self):
        q = tokens(0, 1, 3, 4).requires_grad_()
        axes = torch.eye(4, dtype=torch.float64)
        for rows in (axes, axes[:2], torch.cat([axes, axes]), axes[[0, 0, 0]]):
            d = rows[None, None].clone().requires_grad_()
            assert torch.autograd.gradcheck(EigenLIScores(k=2), (q, d), fast_mode=True)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    def test_gradients_of_a_fully_masked_document_are_finite(self, dtype):
        q, d = tokens(0, 2, 4, 8).to(dtype), tokens(1, 2, 1, 6, 8).to(dtype).requires_grad_()
        mask = torch.ones(2, 1, 6)
        mask[1] = 0
        got = EigenLIScores(k=3)(q, d, documents_mask=mask)
        got.sum().backward()
        assert got.dtype == torch.float32
        assert torch.isfinite(got).all()
        assert torch.isfinite(d.grad).all()
        assert not d.grad[1].any()

    def test_settings_out_of_range_are_refused(self):
        with pytest.raises(ValueError, match="k must be a positive integer"):
            EigenLIScores(k=0)
        with pytest.raises(ValueError, match="sharpness must be positive"):
            EigenLIScores(sharpness=0)
        with pytest.raises(ValueError, match=r"must have the shape .* got \(4, 8\)"):
            EigenLIScores(k=2)(tokens(0, 1, 2, 8), tokens(0, 4, 8))
        with pytest.raises(ValueError, match="1 queries cannot be paired with 2 documents"):
            EigenLIScores(k=2)(tokens(0, 1, 2, 8), tokens(0, 2, 4, 8))
        with pytest.raises(ValueError, match=r"k=9 .* d=8"):
            EigenLIScores(k=9)(tokens(0, 1, 2, 8), tokens(0, 1, 1, 4, 8))


class TestTraining:
    """PyLate's losses, with a real model."""

    QUERIES = ("red fruit", "blue water", "green plant", "yellow sky")
    POSITIVES = ("the apple is red", "the sea is blue", "the grass is green", "a yellow sun")
    NEGATIVES = ("the leaf is green", "a red sun", "water is blue", "the fruit is a apple")

    @pytest.fixture
    def model(self, untrained):
        model, weights = untrained
        model.load_state_dict(weights)
        return model.train()

    @pytest.fixture
    def features(self, model):
        return [
            model.tokenize(list(self.QUERIES), is_query=True),
            model.tokenize(list(self.POSITIVES), is_query=False, pad=True),
            model.tokenize(list(self.NEGATIVES), is_query=False, pad=True),
        ]

    @staticmethod
    def train(model, loss, steps, *arguments):
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        history = []
        for _ in range(steps):
            optimizer.zero_grad()
            value = loss(*arguments)
            value.backward()
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            assert gradients
            assert all(torch.isfinite(gradient).all() for gradient in gradients)
            optimizer.step()
            history.append(value.item())
        return history

    def test_contrastive_loss_falls(self, model, features, pylate):
        loss = pylate.losses.Contrastive(model, score_metric=EigenLIScores(k=4))
        history = self.train(model, loss, 10, features)
        assert history[-1] < 0.7 * history[0]

    def test_cached_contrastive_loss_falls(self, model, features, pylate):
        loss = pylate.losses.CachedContrastive(
            model, score_metric=EigenLIScores(k=4), mini_batch_size=2, score_mini_batch_size=3
        )
        history = self.train(model, loss, 10, features)
        assert history[-1] < 0.7 * history[0]

    def test_chunks_of_queries_do_not_change_the_loss(self, model, features, pylate):
        model.eval()
        whole = pylate.losses.Contrastive(model, score_metric=EigenLIScores(k=4))
        parts = pylate.losses.Contrastive(
            model, score_metric=EigenLIScores(k=4), score_mini_batch_size=3
        )
        torch.testing.assert_close(whole(features), parts(features))

    def test_distillation_loss_falls(self, model, pylate):
        documents = [x for pair in zip(self.POSITIVES, self.NEGATIVES, strict=True) for x in pair]
        features = [
            model.tokenize(list(self.QUERIES), is_query=True),
            model.tokenize(documents, is_query=False, pad=True),
        ]
        labels = torch.tensor([[0.9, 0.1]] * 4)
        loss = pylate.losses.Distillation(
            model, score_metric=EigenLIScores(k=4, distillation=True), normalize_scores=False
        )
        history = self.train(model, loss, 8, features, labels)
        assert history[-1] < history[0]
