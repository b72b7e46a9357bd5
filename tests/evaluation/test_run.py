"""The evaluation measures what its files say, once, beside full MaxSim and the paper."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from helpers.local_tasks import Reranked, TwoSubsets
from helpers.tiny_collection import TEXTS, tiny_collection
from helpers.tiny_model import tiny_model
from typer.testing import CliRunner

from pylate_eigenli import EigenLIIndex
from pylate_eigenli.cli import app
from pylate_eigenli.cli.evaluate import _method_names
from pylate_eigenli.evaluation import beir, metrics, mteb_data, run
from pylate_eigenli.evaluation.bootstrap import paired_interval
from pylate_eigenli.evaluation.paper.results import select
from pylate_eigenli.evaluation.report import Report


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model = tiny_model(folder, dim=16)
    model.save(str(folder / "saved"))
    return model, str(folder / "saved")


@pytest.fixture
def collection(tmp_path):
    return tiny_collection(tmp_path / "tiny")


def command(*arguments):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


class TestCommand:
    def test_every_method_is_measured_written_in_three_forms_and_drawn(
        self, model, collection, tmp_path
    ):
        out = tmp_path / "out"
        other = tiny_collection(tmp_path / "other")
        options = ["--model", model[1], "--data", collection, "--data", other, "--out", out]
        result = command(*options, "--methods", "full,eigenli", "--methods", "muvera", "-k", "2,4")
        assert result.exit_code == 0, result.output
        names = ["full", "eigenli-2", "eigenli-4", "muvera"]
        expected = [(data, name) for data in ("tiny", "other") for name in names]
        report = json.loads((out / "results.json").read_text())
        assert [(row["data"], row["method"]) for row in report["results"]] == expected
        full, eigenli = report["results"][0], report["results"][1]
        assert full["metrics"]["nDCG@10"] == {"value": 1}
        # Two directions in half precision, and what an index of 81 documents needs besides.
        assert 2 * 2 * 16 < eigenli["bytes_per_document"] < 300
        assert eigenli["build_times_eigenli"] == 1
        assert eigenli["ms_per_query"] > 0
        assert eigenli["ms_per_query_in_batch"] > 0
        assert set(report["geometric_mean_ratio_to_full"]) == set(names[1:])
        with (out / "results.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == len(expected) * 9
        assert {row["method"] for row in rows if row["low"]} == set(names[1:])
        text = (out / "results.md").read_text()
        assert result.stdout.strip() == text.strip()
        assert all(text.count(f"| {name} |") >= 2 for name in names)
        for name in ("quality-by-size.png", "quality-by-time.png"):
            assert (out / name).read_bytes().startswith(b"\x89PNG")
            assert f"plot: {out / name}" in result.stderr

    def test_options_of_a_method_may_have_commas(self):
        given = ["full,eigenli-sv:dtype=binary,rerank=maxsim,ward", "plaid:nbits=2"]
        assert _method_names(given) == [
            "full",
            "eigenli-sv:dtype=binary,rerank=maxsim",
            "ward",
            "plaid:nbits=2",
        ]

    def test_json_is_all_there_is_on_stdout(self, model, collection, tmp_path):
        options = ["--model", model[1], "--data", collection, "--out", tmp_path / "out"]
        result = command(*options, "--methods", "ward-2", "--json", "--paper-settings")
        (row,) = json.loads(result.stdout)["results"]
        assert (row["documents"], row["queries"], row["method"]) == (81, 5, "ward-2")

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            (["--methods", "wart"], "error: unknown method 'wart': expected full, "),
            (["-k", "8,x"], "error: -k must be positive integers separated by commas, got 'x'"),
            (["--data", "nowhere"], "error: 'nowhere' is neither a folder nor a task"),
        ],
    )
    def test_mistakes_are_one_line_before_anything_is_done(
        self, options, error, collection, tmp_path
    ):
        out = tmp_path / "out"
        result = command("--model", "none", "--data", collection, "--out", out, *options)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.splitlines()[-1].startswith(error)
        assert not out.exists()


class TestResults:
    def test_are_those_of_the_definition(self, model, collection, tmp_path):
        data = beir.load(collection)
        (result,) = run.evaluate(*model, [data], ["eigenli-2"], tmp_path, show_progress=False)
        index = EigenLIIndex(str(tmp_path / "index"), k=2, preset="paper", show_progress=False)
        documents = [np.float16(x) for x in model[0].encode(TEXTS, is_query=False)]
        index.add_documents([str(i) for i in range(len(TEXTS))], documents)
        queries = [np.float16(x) for x in model[0].encode(TEXTS[:5], is_query=True)]
        found = {
            f"q{i}": [hit["id"] for hit in hits] for i, hits in enumerate(index(queries, k=100))
        }
        for column in run.COLUMNS:
            metric, cutoff = column.split("@")
            expected = metrics.evaluate(found, data.qrels, metric, int(cutoff))
            np.testing.assert_allclose(result.per_query[column], expected)

    def test_are_measured_once(self, model, collection, tmp_path):
        data, (encoder, name) = beir.load(collection), model

        def measure(encoder, *methods, **options):
            return run.evaluate(
                encoder, name, [data], methods, tmp_path, show_progress=False, **options
            )

        first = measure(encoder, "full", "muvera")
        encoder = _Mute(encoder)
        # A method that was measured again has another build time.
        assert measure(encoder, "full", "muvera") == first
        assert measure(encoder, "ward-2", "muvera")[1] == first[1]
        assert measure(encoder, "muvera", override=True)[0] != first[1]

    def test_the_query_itself_is_no_answer_unless_it_is_judged_to_be_one(self):
        qrels = {"1": {"2": 1}, "2": {"2": 1}}
        collection = beir.Collection("c", {}, {"1": "", "2": ""}, qrels)
        assert collection.answers("1", ["1", "2"]) == ["2"]
        assert collection.answers("2", ["1", "2"]) == ["1", "2"]

    def test_mistakes_in_options_are_found_before_anything_is_encoded(self, model, tmp_path):
        with pytest.raises(ValueError, match="dtype must be one of"):
            run.evaluate(_Mute(model[0]), model[1], [], ["eigenli-2:dtype=int3"], tmp_path)

    def test_every_method_is_measured_by_the_same_harness(self, model, collection, tmp_path):
        data = beir.load(collection)
        names = ["full", "eigenli-sv-2:dtype=binary,rerank=maxsim", "plaid"]
        results = run.evaluate(*model, [data], names, tmp_path, show_progress=False)
        assert [result.method for result in results] == names
        for result in results:
            assert result.build_seconds > 0
            assert result.bytes_per_document > 0
            assert result["nDCG@10"] > 0.5

    def test_a_task_of_mteb_is_a_collection(self):
        first, second = mteb_data.load(TwoSubsets())
        assert (first.name, second.name) == ("LocalSubsets-a", "LocalSubsets-the")
        assert list(second.corpus.values()) == TEXTS
        assert second.queries["d7"] == TEXTS[7]
        assert second.qrels["d7"] == {"d7": 1}
        assert not second.ignore_identical_ids
        with pytest.raises(ValueError, match="LocalReranking is not a text retrieval task"):
            mteb_data.load(Reranked())


class _Mute:
    """Has the settings of a model, but does not encode."""

    def __init__(self, model):
        self.model = model

    def __getattr__(self, name):
        assert name != "encode"
        return getattr(self.model, name)


class TestReport:
    def result(self, name, values, **options):
        per_query = dict.fromkeys(run.COLUMNS, values)
        options = {"model": "colbert-ir/colbertv2.0", "data": "scifact", **options}
        return run.Result(
            method=name,
            documents=10,
            build_seconds=2.0 if name.startswith("ward") else 0.5,
            bytes_per_document=1.0,
            ms_per_query=1.0,
            ms_per_query_in_batch=0.5,
            per_query=per_query,
            **options,
        )

    def test_numbers_of_the_paper_are_beside_those_of_the_same_model_data_and_method(self):
        names = {"full": 0.6959, "eigenli-32": 0.6841, "ward-8": 0.5484, "eigenli-64": None}
        rows = Report([self.result(name, [0.5, 0.7]) for name in names]).rows
        assert {row.result.method: row.paper.get("nDCG@10") for row in rows} == names
        assert not Report([self.result("full", [0.5], data="cisi")]).rows[0].paper
        assert not Report([self.result("full", [0.5], model="other")]).rows[0].paper

    def test_centered_methods_have_the_paper_s_centered_numbers(self):
        model = "answerdotai/answerai-colbert-small-v1"
        names = ["eigenli-sv-32", "eigenli-sv-32:centering=both", "eigenli-32:centering=both"]
        names += ["muvera", "muvera-centered", "eigenli-sv-32:dtype=binary"]
        rows = Report([self.result(name, [0.5], model=model) for name in names]).rows
        asked = {"model": model, "dataset": "SciFact", "metric": "nDCG", "cutoff": 10}
        plain, centered = (
            [
                select(**asked, method="EigenLI-SV", k=32, centered=is_centered)[0].value,
                select(**asked, method="MUVERA", centered=is_centered)[0].value,
            ]
            for is_centered in (False, True)
        )
        expected = [plain[0], centered[0], centered[0], plain[1], centered[1]]
        assert [row.paper.get("nDCG@10") for row in rows] == [*expected, None]

    def test_differences_to_full_have_their_intervals(self):
        a, b = [0.5, 0.7, 0.1, 0.3], [0.6, 0.7, 0.2, 0.1]
        report = Report([self.result("full", b), self.result("ward-8", a)])
        assert report.rows[1].versus_full["MRR@10"] == paired_interval(a, b)
        assert not report.rows[0].versus_full
        assert not report.overall
        assert "0.5484 (-0.1484)" in report.to_markdown()

    def test_build_time_is_compared_with_eigenli_of_the_same_k(self):
        names = ["full", "eigenli-8", "ward-8", "ward-16", "muvera"]
        rows = Report([self.result(name, [1.0]) for name in names]).rows
        assert [row.times_eigenli for row in rows] == [None, 1, 4, None, None]
