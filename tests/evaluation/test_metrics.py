"""Metrics agree with their definitions, and collections that are broken are named."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from pylate_eigenli.evaluation import beir
from pylate_eigenli.evaluation.embeddings import encode_cached
from pylate_eigenli.evaluation.metrics import evaluate, mrr, ndcg, recall

RELEVANCE = {"a": 2, "b": 1, "c": 0}


class TestMetrics:
    def test_ndcg_is_one_for_the_ideal_order_and_discounts_the_rest(self):
        assert ndcg(["a", "b", "c"], RELEVANCE, 10) == pytest.approx(1)
        ideal = 2 + 1 / math.log2(3)
        assert ndcg(["b", "x", "a"], RELEVANCE, 10) == pytest.approx((1 + 2 / 2) / ideal)
        assert ndcg(["x", "a"], RELEVANCE, 1) == 0

    def test_recall_is_truncated(self):
        many = {str(i): 1 for i in range(50)}
        assert recall([str(i) for i in range(10)], many, 10) == 1
        assert recall(["a", "x"], RELEVANCE, 10) == 0.5

    def test_mrr_is_the_reciprocal_of_the_first_relevant_rank(self):
        assert mrr(["c", "x", "b"], RELEVANCE, 10) == pytest.approx(1 / 3)
        assert mrr(["c", "x", "b"], RELEVANCE, 2) == 0

    def test_unanswered_queries_count_and_unjudged_ones_do_not(self):
        qrels = {"1": {"a": 1}, "2": {"b": 1}, "3": {"c": 0}}
        np.testing.assert_array_equal(evaluate({"1": ["a"]}, qrels, "nDCG", 10), [1, 0])

    @pytest.mark.parametrize("cutoff", [1, 10, 100])
    def test_agree_with_trec_eval(self, cutoff):
        pytrec_eval = pytest.importorskip("pytrec_eval")
        rng = np.random.default_rng(cutoff)
        documents = [f"d{i}" for i in range(200)]
        qrels = {
            f"q{i}": {d: int(rng.integers(0, 3)) for d in rng.choice(documents, 30, replace=False)}
            for i in range(20)
        }
        run = {query: rng.permutation(documents).tolist() for query in qrels}
        scored = {query: {d: 1 / (i + 1) for i, d in enumerate(run[query])} for query in run}
        # The first relevant document is found anywhere; beyond the cutoff ours is 0.
        cut = {query: dict(list(found.items())[:cutoff]) for query, found in scored.items()}
        theirs = {
            "nDCG": _trec(pytrec_eval, qrels, scored, f"ndcg_cut_{cutoff}"),
            "MRR": _trec(pytrec_eval, qrels, cut, "recip_rank"),
        }
        relevant = [sum(g > 0 for g in judged.values()) for judged in qrels.values()]
        # trec_eval divides by all relevant documents, however few the cutoff admits.
        plain = _trec(pytrec_eval, qrels, scored, f"recall_{cutoff}")
        theirs["Recall"] = plain * relevant / np.minimum(relevant, cutoff)
        for metric, expected in theirs.items():
            np.testing.assert_allclose(evaluate(run, qrels, metric, cutoff), expected, atol=1e-9)


def _trec(pytrec_eval, qrels, run, measure):
    family = measure.rsplit("_", 1)[0] if measure[-1].isdigit() else measure
    asked = measure if family == measure else f"{family}.{measure.rsplit('_', 1)[1]}"
    found = pytrec_eval.RelevanceEvaluator(qrels, {asked}).evaluate(run)
    return np.array([found[query][measure] for query in qrels])


class TestCollections:
    def make(self, folder, corpus=None, qrels="query-id\tcorpus-id\tscore\nq\td\t1\n"):
        (folder / "qrels").mkdir()
        row = {"_id": "d", "title": "Title", "text": "text"}
        (folder / "corpus.jsonl").write_text(corpus or json.dumps(row) + "\n")
        (folder / "queries.jsonl").write_text(
            '{"_id": "q", "text": "query"}\n{"_id": "unjudged", "text": "no"}\n'
        )
        (folder / "qrels" / "test.tsv").write_text(qrels)
        return folder

    def test_titles_and_texts_are_joined_and_only_judged_queries_kept(self, tmp_path):
        collection = beir.load(self.make(tmp_path))
        assert collection.corpus == {"d": "Title text"}
        assert collection.queries == {"q": "query"}
        assert collection.qrels == {"q": {"d": 1}}

    def test_what_is_broken_is_named(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"test\.tsv is missing"):
            beir.load(tmp_path)
        with pytest.raises(ValueError, match=r"corpus\.jsonl, line 1"):
            beir.load(self.make(tmp_path, corpus="{broken\n"))

    def test_judged_queries_must_exist(self, tmp_path):
        with pytest.raises(ValueError, match="'ghost'"):
            beir.load(self.make(tmp_path, qrels="ghost\td\t1\n"))


class TestEmbeddingCache:
    class Model:
        query_length = 8

        def __init__(self):
            self.calls = 0

        def encode(self, texts, is_query, batch_size, show_progress_bar):
            self.calls += 1
            return [np.full((len(text), 4), 0.5, np.float32) for text in texts]

    def test_texts_are_encoded_once_and_for_each_model_and_option(self, tmp_path):
        model = self.Model()
        options = {"cache": tmp_path, "is_query": True, "show_progress": False}
        first = encode_cached(model, "m", ["ab", "abc"], **options)
        again = encode_cached(model, "m", ["ab", "abc"], **options)
        assert model.calls == 1
        assert [len(again[i]) for i in range(2)] == [len(first[i]) for i in range(2)] == [2, 3]
        assert again[0].dtype == np.float16
        encode_cached(model, "m", ["ab", "abd"], **options)
        model.query_length = 16
        encode_cached(model, "m", ["ab", "abc"], **options)
        assert model.calls == 3
