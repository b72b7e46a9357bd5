"""Losses, trainer, evaluators and token pooling of sentence-transformers 6 work with EigenLI."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from helpers.definition import unit_rows
from helpers.tiny_model import save_bert, tiny_mv

from pylate_eigenli import EigenLIIndex, EigenLIScores
from pylate_eigenli.scores.scores import eigenli_token_scores
from pylate_eigenli.scores.token_pooling import EigenLITokenPooling

QUERIES = ["red fruit", "blue water", "green plant", "yellow sky"]
POSITIVES = ["the apple is red", "the sea is blue", "the grass is green", "a yellow sun"]
NEGATIVES = ["the leaf is green", "a red sun", "water is blue", "the fruit is a apple"]
LABELS = {"margins": [0.8] * 4, "scores": [[0.9, 0.1]] * 4}

pytestmark = pytest.mark.usefixtures("multi_vector")


@pytest.fixture(scope="module")
def untrained(tmp_path_factory, multi_vector):
    folder = tmp_path_factory.mktemp("model")
    save_bert(folder)
    torch.manual_seed(0)
    model = tiny_mv(folder, dim=8)
    return model, copy.deepcopy(model.state_dict())


@pytest.fixture
def model(untrained):
    model, weights = untrained
    model.load_state_dict(weights)
    return model


def losses(model):
    """Return every multi-vector loss, with the labels that it needs."""
    from sentence_transformers.multi_vector_encoder import losses

    contrastive = EigenLIScores(k=4)
    return {
        "ranking": (
            losses.MultiVectorMultipleNegativesRankingLoss(model, similarity_fct=contrastive),
            None,
        ),
        "chunks": (
            losses.MultiVectorMultipleNegativesRankingLoss(
                model, similarity_fct=contrastive, score_mini_batch_size=3
            ),
            None,
        ),
        "cached": (
            losses.CachedMultiVectorMultipleNegativesRankingLoss(
                model, similarity_fct=contrastive, mini_batch_size=2
            ),
            None,
        ),
        "distillation": (
            losses.MultiVectorDistillKLDivLoss(
                model, similarity_fct=EigenLIScores(k=4, distillation=True)
            ),
            "scores",
        ),
        "margins": (losses.MultiVectorMarginMSELoss(model, similarity_fct=contrastive), "margins"),
        "plus": (
            losses.MultiVectorMultipleNegativesRankingLoss(
                model, similarity_fct=EigenLIScores(k=4, preset="plus")
            ),
            None,
        ),
    }


def features(model):
    return [
        model.preprocess(texts, task=task)
        for texts, task in ((QUERIES, "query"), (POSITIVES, "document"), (NEGATIVES, "document"))
    ]


class TestLosses:
    @pytest.mark.parametrize(
        "name", ["ranking", "chunks", "cached", "distillation", "margins", "plus"]
    )
    def test_fall_within_few_steps(self, model, name):
        loss, labels = losses(model)[name]
        labels = None if labels is None else torch.tensor(LABELS[labels])
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        history = []
        for _ in range(10):
            optimizer.zero_grad()
            value = loss(features(model), labels)
            value.backward()
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            assert gradients
            assert all(torch.isfinite(gradient).all() for gradient in gradients)
            optimizer.step()
            history.append(value.item())
        assert history[-1] < 0.9 * history[0]

    def test_chunks_of_queries_do_not_change_the_loss(self, model):
        model.eval()
        made = losses(model)
        whole, parts, cached = (
            made[name][0](features(model)) for name in ("ranking", "chunks", "cached")
        )
        torch.testing.assert_close(parts, whole)
        torch.testing.assert_close(cached, whole)

    def test_name_the_settings_of_the_score(self, model):
        described = losses(model)["plus"][0].get_config_dict()["similarity_fct"]
        assert described.startswith("EigenLIScores(k=4, ")
        assert "preset='plus'" in described

    def test_the_trainer_lowers_the_loss(self, model, tmp_path):
        from datasets import Dataset
        from sentence_transformers import (
            MultiVectorEncoderTrainer,
            MultiVectorEncoderTrainingArguments,
        )

        rows = {"query": QUERIES, "positive": POSITIVES, "negative": NEGATIVES}
        arguments = MultiVectorEncoderTrainingArguments(
            output_dir=str(tmp_path),
            num_train_epochs=40,
            per_device_train_batch_size=4,
            learning_rate=5e-3,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = MultiVectorEncoderTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict(rows),
            loss=losses(model)["ranking"][0],
        )
        trainer.train()
        history = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert history[-1] < 0.7 * history[0]


CORPUS = {f"d{i}": text for i, text in enumerate(POSITIVES + NEGATIVES)}
SCORES = {"eigenli": partial(eigenli_token_scores, k=4)}


class TestEvaluators:
    def by_the_index(self, model, tmp_path):
        """Return the reciprocal rank that an index gives."""
        index = EigenLIIndex(str(tmp_path), k=4, dtype="float32", show_progress=False)
        index.add_documents(list(CORPUS), model.encode_document(list(CORPUS.values())))
        results = index(model.encode_query(QUERIES), k=8)
        ranks = [[hit["id"] for hit in hits].index(f"d{i}") + 1 for i, hits in enumerate(results)]
        return np.mean([1 / rank for rank in ranks])

    def test_measure_what_the_index_finds(self, model, tmp_path):
        from sentence_transformers.multi_vector_encoder import evaluation

        evaluator = evaluation.MultiVectorInformationRetrievalEvaluator(
            queries={f"q{i}": text for i, text in enumerate(QUERIES)},
            corpus=CORPUS,
            relevant_docs={f"q{i}": {f"d{i}"} for i in range(4)},
            corpus_chunk_size=3,
            score_functions=SCORES,
            write_csv=False,
        )
        found = evaluator(model)
        assert evaluator.primary_metric == "eigenli_ndcg@10"
        assert found["eigenli_mrr@10"] == pytest.approx(self.by_the_index(model, tmp_path))

    def test_nano_beir_too(self, model, tmp_path):
        from datasets import Dataset
        from sentence_transformers.multi_vector_encoder import evaluation

        class Local(evaluation.MultiVectorNanoBEIREvaluator):
            """Reads the tiny collection in place of the one on the Hub."""

            def _load_dataset_subset_split(self, subset, split, required_columns):
                texts = CORPUS if subset == "corpus" else dict(enumerate(QUERIES))
                if subset == "qrels":
                    rows = [(f"q{i}", f"d{i}") for i in range(4)]
                else:
                    rows = [
                        (i if subset == "corpus" else f"q{i}", text) for i, text in texts.items()
                    ]
                columns = zip(*rows, strict=True)
                return Dataset.from_dict(
                    dict(zip(required_columns, map(list, columns), strict=True))
                )

        evaluator = Local(["scifact"], score_functions=SCORES, write_csv=False)
        found = evaluator(model)
        (value,) = {v for key, v in found.items() if key.endswith("_mean_eigenli_mrr@10")}
        assert value == pytest.approx(self.by_the_index(model, tmp_path))


class TestTokenPooling:
    def scores(self, documents, queries, folder, k):
        index = EigenLIIndex(str(folder), k=k, dtype="float32", show_progress=False)
        results = index.add_documents(range(len(documents)), documents)(queries, k=len(documents))
        return [{hit["id"]: hit["score"] for hit in hits} for hits in results]

    def test_an_index_of_pooled_documents_gives_the_same_scores(self, tmp_path):
        rng = np.random.default_rng(0)
        documents = [torch.from_numpy(unit_rows(rng, n, 16)) for n in (1, 3, 5, 20, 60)]
        queries = [unit_rows(rng, 4, 16) for _ in range(3)]
        pooled = EigenLITokenPooling(k=5).pool(documents)
        assert [len(rows) for rows in pooled] == [1, 3, 5, 5, 5]
        for rows, tokens in zip(pooled, documents, strict=True):
            torch.testing.assert_close(rows @ rows.mT, torch.eye(len(rows)), atol=1e-5, rtol=0)
            assert (rows @ tokens.sum(0) >= -1e-5).all()
        expected = self.scores(documents, queries, tmp_path / "all", 5)
        for found, known in zip(
            self.scores(pooled, queries, tmp_path / "pooled", 5), expected, strict=True
        ):
            assert found == pytest.approx(known, abs=1e-4)

    def test_it_is_passed_to_a_call(self, model):
        pooling = EigenLITokenPooling(k=2)
        whole = model.encode_document(POSITIVES)
        pooled = model.encode_document(POSITIVES, token_pooling=pooling)
        for rows, expected in zip(pooled, pooling.pool(whole), strict=True):
            torch.testing.assert_close(rows, expected)
        queries = model.encode_query(QUERIES, token_pooling=pooling)
        for rows, expected in zip(queries, model.encode_query(QUERIES), strict=True):
            torch.testing.assert_close(rows, expected)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_the_dtype_is_kept(self, dtype):
        document = torch.from_numpy(unit_rows(np.random.default_rng(1), 9, 8)).to(dtype)
        (rows,) = EigenLITokenPooling(k=3).pool([document])
        assert (rows.dtype, rows.shape) == (dtype, (3, 8))

    def test_it_is_saved_with_a_checkpoint(self, tmp_path, model, untrained):
        from sentence_transformers import MultiVectorEncoder

        plain = copy.deepcopy(model)
        plain.append(EigenLITokenPooling(k=2))
        plain.save(str(tmp_path / "pooled"))
        loaded = MultiVectorEncoder(str(tmp_path / "pooled"), device="cpu", trust_remote_code=True)
        assert loaded[-1].k == 2
        expected = EigenLITokenPooling(k=2).pool(model.encode_document(POSITIVES))
        for rows, known in zip(loaded.encode_document(POSITIVES), expected, strict=True):
            torch.testing.assert_close(rows.abs(), known.abs(), atol=1e-4, rtol=0)
        assert len(loaded.encode_query(QUERIES)[0]) == len(model.encode_query(QUERIES)[0])

    def test_what_it_cannot_do_is_refused(self):
        with pytest.raises(ValueError, match="k must be a positive integer"):
            EigenLITokenPooling(k=0)
        with pytest.raises(ValueError, match=r"similarity_fct=EigenLIScores\(k=2\)"):
            EigenLITokenPooling(k=2).pool([torch.eye(4, requires_grad=True)])
        with pytest.raises(ValueError, match=r"k=9 .* d=4"):
            EigenLITokenPooling(k=9).pool([torch.eye(4)])
