"""mteb runs its own kinds of tasks with compressed documents, one chunk of tokens at a time."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path

import mteb
import numpy as np
import pytest
import torch
from helpers.local_tasks import Composed, Known, Pictures, Reranked, TwoSubsets, WithoutSelf
from helpers.tiny_collection import TEXTS
from helpers.tiny_model import tiny_model
from mteb.models import MultiVectorWrapper
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_implementations.pylate_models import MultiVectorModel
from mteb.models.model_meta import ModelMeta
from mteb.models.models_protocols import EncoderProtocol, SearchProtocol

from pylate_eigenli.evaluation import metrics, mteb_data
from pylate_eigenli.evaluation.methods import parse
from pylate_eigenli.evaluation.mteb_search import CompressedSearch
from pylate_eigenli.models.text_models import adapted, installed_library, load_model
from pylate_eigenli.tokens import collect


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_model(folder, dim=16).save(str(folder / "saved"))
    return folder / "saved"


@pytest.fixture(scope="module")
def model(folder):
    return load_model(str(folder))


def encoded(model, texts, *, is_query):
    """Return the embeddings of a model of either library."""
    return adapted(model).encode(texts, is_query=is_query)


def scores(search, *tasks, **options):
    """Return the scores of mteb by task and subset."""
    options = {"cache": None, "show_progress_bar": False, **options}
    results = mteb.evaluate(search, tasks, **options)
    return {
        (result.task_name, entry["hf_subset"]): entry
        for result in results.task_results
        for entry in result.scores["test"]
    }


def predictions(search, task, tmp_path):
    """Return the scores of documents by subset and query."""
    scores(search, task, prediction_folder=tmp_path)
    (path,) = tmp_path.glob("*.json")
    saved = json.loads(path.read_text())
    return {subset: saved[subset]["test"] for subset in task.hf_subsets}


CHUNK = 10


def by_definition(model, name, folder):
    """Return the scores of all queries of ``Known`` and all documents, without mteb."""
    method = parse(name).open(folder)
    # In chunks, because the codes of single vectors depend on the first one.
    for begin in range(0, len(TEXTS), CHUNK):
        texts = TEXTS[begin : begin + CHUNK]
        method.add(collect(encoded(model, texts, is_query=False)))
    queries = collect(encoded(model, TEXTS[::7], is_query=True))
    scores = np.empty((len(queries), len(TEXTS)), np.float32)
    for row, hits in zip(scores, method.search(queries, len(TEXTS)), strict=True):
        row[hits.rows] = hits.scores
    method.close()
    return scores


class TestTasks:
    @pytest.mark.parametrize("name", ["full", "eigenli-4", "eigenli-sv-4", "ward-2", "muvera"])
    def test_retrieval_finds_the_documents_with_the_highest_scores(self, name, model, tmp_path):
        found = predictions(CompressedSearch(model, name, chunk_size=CHUNK), Known(), tmp_path)
        expected = by_definition(model, name, tmp_path / "whole")
        for row, hits in zip(expected, found["default"].values(), strict=True):
            best = np.argsort(-row, kind="stable")[:10]
            np.testing.assert_allclose(sorted(hits.values()), row[best][::-1], rtol=1e-4)
            assert all(abs(row[int(i[1:])] - score) < 1e-3 for i, score in hits.items())

    def test_reranking_scores_the_candidates_and_nothing_else(self, model, tmp_path):
        search = CompressedSearch(model, "eigenli-4", chunk_size=CHUNK)
        found = predictions(search, Reranked(), tmp_path)
        expected = by_definition(model, "eigenli-4", tmp_path / "whole")
        for (query, hits), row in zip(found["default"].items(), expected, strict=True):
            remainder = int(query[1:]) % 11
            assert set(hits) == {f"d{i}" for i in range(remainder, len(TEXTS), 11)}
            np.testing.assert_allclose(
                list(hits.values()), [row[int(i[1:])] for i in hits], rtol=1e-4
            )

    def test_subsets_are_searched_each_in_its_own_corpus(self, model):
        found = scores(CompressedSearch(model, "full", chunk_size=50), TwoSubsets())
        assert set(found) == {("LocalSubsets", "a"), ("LocalSubsets", "the")}
        assert all(entry["ndcg_at_10"] > 0.99 for entry in found.values())

    def test_the_query_itself_is_no_answer_where_mteb_says_so(self, model, tmp_path):
        search = CompressedSearch(model, "eigenli-4")
        entry = scores(search, WithoutSelf())["LocalSelf", "default"]
        (collection,) = mteb_data.load(WithoutSelf())
        rows = by_definition(model, "eigenli-4", tmp_path)
        # mteb takes its ten hits first and removes the query from them then.
        run = {
            query: collection.answers(query, [f"d{i}" for i in np.argsort(-row)[:10]])
            for query, row in zip(collection.queries, rows, strict=True)
        }
        for metric in ("nDCG", "MRR"):
            expected = metrics.evaluate(run, collection.qrels, metric, 10).mean()
            assert entry[f"{metric.lower()}_at_10"] == pytest.approx(expected, abs=1e-5)

    def test_plaid_is_a_method_too(self, model, pylate):
        found = scores(CompressedSearch(model, "plaid"), Known())
        assert found["LocalRetrieval", "default"]["ndcg_at_10"] > 0.9


class PaddedEncoder(AbsEncoder):
    """Follows mteb's protocol of encoders, as its wrappers of ColPali models do."""

    def __init__(self, model):
        self.model = model
        self.mteb_model_meta = ModelMeta.create_empty({"name": "some/encoder"})

    def encode(self, inputs, *, task_metadata, hf_split, hf_subset, prompt_type=None, **kwargs):
        texts = [text for batch in inputs for text in batch["text"]]
        tokens = encoded(self.model, texts, is_query=prompt_type.value == "query")
        return torch.nn.utils.rnn.pad_sequence(list(map(torch.as_tensor, tokens)), batch_first=True)


class ColourModel:
    """Sees pictures, with the interface of PyLate's models."""

    modalities = ("text", "image")

    def encode(self, inputs, *, is_query, batch_size, show_progress_bar):
        colours = ["red", "green", "blue"]
        if is_query:
            return [np.eye(3, dtype=np.float32)[[colours.index(text)]] for text in inputs]
        return [np.asarray(image, np.float32).reshape(-1, 3) / 255 for image in inputs]


class TestModels:
    def test_every_way_to_give_a_model_gives_the_same(self, model, folder, tmp_path):
        others = {
            "path": CompressedSearch(str(folder), "eigenli-4"),
            "encoder": CompressedSearch(PaddedEncoder(model), "eigenli-4"),
            "lists": CompressedSearch(Failing(model, 100), "eigenli-4", name="of/lists"),
        }
        wrapper = MultiVectorModel if installed_library() == "pylate" else MultiVectorWrapper
        others["mteb"] = CompressedSearch(wrapper(str(folder)), "eigenli-4", name="of/mteb")
        expected = predictions(CompressedSearch(model, "eigenli-4"), Known(), tmp_path / "0")
        for name, search in others.items():
            assert isinstance(search, SearchProtocol)
            assert not isinstance(search, EncoderProtocol)
            found = predictions(search, Known(), tmp_path / name)["default"]
            for query, hits in expected["default"].items():
                assert found[query] == pytest.approx(hits, abs=1e-4)

    def test_pictures_reach_the_model(self):
        search = CompressedSearch(ColourModel(), "eigenli-1", name="some/eyes")
        assert scores(search, Pictures())["LocalPictures", "default"]["ndcg_at_10"] == 1

    def test_names_tell_method_and_budget_so_that_no_results_are_overwritten(self, model, tmp_path):
        cache = mteb.ResultCache(tmp_path)
        for name in ("ward-2", "ward-4"):
            search = CompressedSearch(model, name, name="of/words")
            assert search.mteb_model_meta.name == f"of/words-{name}"
            scores(search, Known(), cache=cache)
        assert len(list(tmp_path.rglob("LocalRetrieval.json"))) == 2
        official = CompressedSearch(model, "eigenli-32", name="colbert-ir/colbertv2.0")
        assert official.mteb_model_meta.adapted_from == "colbert-ir/colbertv2.0"
        assert official.mteb_model_meta.license == "mit"

    def test_models_of_equal_names_do_not_share_results(self, tmp_path):
        def ndcg(folder):
            search = CompressedSearch(str(folder), "eigenli-4")
            (entry,) = scores(search, Known(), cache=mteb.ResultCache(tmp_path / "cache")).values()
            return search.mteb_model_meta, entry["ndcg_at_10"]

        model = tiny_model(tmp_path / "tiny", dim=16)
        for run in ("one", "two"):
            model.save(str(tmp_path / run / "final"))
            for weights in model.parameters():
                weights.data = torch.randn_like(weights)
        one, two = ndcg(tmp_path / "one" / "final"), ndcg(tmp_path / "two" / "final")
        assert one[0].name == two[0].name == "local/final-eigenli-4"
        assert one[0].revision != two[0].revision
        saved = (tmp_path / "cache").rglob("LocalRetrieval.json")
        assert {path.parent.name for path in saved} == {one[0].revision, two[0].revision}
        assert ndcg(tmp_path / "one" / "final") == one

    def test_results_are_what_mteb_loads_by_default(self, folder, tmp_path, pylate):
        models = pylate.models
        cache = mteb.ResultCache(tmp_path)
        same = {"query_length": models.ColBERT(str(folder)).query_length}
        for lengths in ({}, same, {"query_length": 7}):
            model = models.ColBERT(str(folder), device="cpu", **lengths)
            search = CompressedSearch(model, "eigenli-4:preset=plus", name="of/words")
            meta = search.mteb_model_meta
            assert meta.experiment_kwargs == (
                {"query_length": 7} if 7 in lengths.values() else None
            )
            scores(search, Known(), cache=cache)
        names = {path.name for path in (tmp_path / "results").iterdir()}
        assert names == {"of__words-eigenli-4-preset-plus"}
        loaded = cache.load_results(
            models=["of/words-eigenli-4-preset-plus"], require_model_meta=True
        )
        (result,) = loaded.model_results
        assert [task.task_name for task in result.task_results] == ["LocalRetrieval"]

    @pytest.mark.parametrize("method", ["full", "eigenli-4"])
    def test_mteb_reads_the_description_of_the_model(self, method, model, tmp_path):
        scores(CompressedSearch(model, method), Known(), cache=mteb.ResultCache(tmp_path))
        (path,) = tmp_path.rglob("model_meta.json")
        saved = json.loads(path.read_text())
        for computed in ("loader", "experiment_name", "is_cross_encoder"):
            saved.pop(computed, None)
        name = ModelMeta._validate_similarity_fn_name(saved["similarity_fn_name"])
        assert name == {"full": "MaxSim", "eigenli-4": "dot"}[method]

    def test_the_baseline_of_mteb_is_a_model(self, tmp_path):
        baseline = mteb.get_model("mteb/baseline-random-colbert")
        found = predictions(CompressedSearch(baseline, "full"), Known(), tmp_path / "ours")
        expected = predictions(baseline, Known(), tmp_path / "theirs")
        for query, hits in expected["default"].items():
            assert found["default"][query] == pytest.approx(hits, rel=1e-3)

    def test_queries_of_text_and_image_are_refused_rather_than_halved(self):
        search = CompressedSearch(ColourModel(), "eigenli-1", name="some/eyes")
        with pytest.raises(ValueError, match="queries of LocalComposed are image and text at once"):
            scores(search, Composed())

    def test_what_cannot_be_is_refused_at_once(self, model):
        with pytest.raises(ValueError, match="unknown method 'wart-8'"):
            CompressedSearch(model, "wart-8")
        with pytest.raises(ValueError, match="dtype must be one of"):
            CompressedSearch(model, "eigenli-8:dtype=int3")
        with pytest.raises(ValueError, match="give name="):
            CompressedSearch(ColourModel(), "full")


class Failing:
    """Encodes as a model does until it has done so a number of times."""

    def __init__(self, model, calls):
        self.model, self.left = model, calls

    def encode(self, texts, *, is_query, **options):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return encoded(self.model, texts, is_query=is_query)


class TestResumption:
    def test_an_interrupted_run_goes_on_with_the_chunk_it_lacks(self, model, tmp_path):
        def search(model):
            options = {"chunk_size": 20, "cache_folder": tmp_path, "name": "of/words"}
            return CompressedSearch(model, "eigenli-4", **options)

        with pytest.raises(KeyboardInterrupt):
            scores(search(Failing(model, 3)), Known())
        # Five chunks make the corpus: two are left, and the queries.
        resumed = Failing(model, 3)
        again = scores(search(resumed), Known())
        assert resumed.left == 0
        expected = scores(CompressedSearch(model, "eigenli-4"), Known())
        key = ("LocalRetrieval", "default")
        assert again[key]["map_at_10"] == pytest.approx(expected[key]["map_at_10"])

    def test_nothing_stale_is_read(self, model, tmp_path):
        def run(task, name="eigenli-4", source="of/words", prompts=None):
            counted = Failing(model, 100)
            counted.prompts = prompts
            search = CompressedSearch(counted, name, cache_folder=tmp_path, name=source)
            scores(search, task)
            return 100 - counted.left

        assert run(TwoSubsets()) == 4
        assert run(TwoSubsets()) == 2
        assert run(TwoSubsets(), name="eigenli-8") == 4
        assert run(TwoSubsets(), source="other/words") == 4
        assert run(TwoSubsets(), prompts={"document": "about "}) == 4
        assert run(Known()) == 2


class TestMemory:
    def test_tokens_of_one_chunk_are_alive_at_a_time(self, model):
        alive = weakref.WeakSet()

        class Tokens(np.ndarray):
            __hash__ = object.__hash__

        class Counting:
            most = 0

            def encode(self, texts, *, is_query, **options):
                gc.collect()
                self.most = max(self.most, len(alive) + len(texts))
                arrays = [
                    tokens.view(Tokens) for tokens in encoded(model, texts, is_query=is_query)
                ]
                alive.update(arrays)
                return arrays

        counting = Counting()
        search = CompressedSearch(counting, "eigenli-4", chunk_size=20, name="of/words")
        scores(search, Known())
        assert counting.most == 20

    @pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
    def test_a_corpus_of_ten_times_the_memory_is_indexed(self):
        here = Path(__file__).parents[1] / "helpers"
        done = subprocess.run(
            [sys.executable, str(here / "large_corpus.py")],
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([*sys.path, str(here.parent)]),
                # Arrays as small as those of this test are given back when they are freed, as
                # larger ones always are, and do not leave holes between what is kept.
                "MALLOC_MMAP_THRESHOLD_": "65536",
            },
        )
        assert done.returncode == 0, done.stderr
        tokens, grown = map(float, done.stdout.split())
        assert tokens > 10 * grown
