"""mteb runs its ViDoRe-v3 tasks with pages of a vision model compressed by EigenLI."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mteb = pytest.importorskip("mteb")

from helpers.local_vidore import PAGES, QUESTIONS, LocalHr  # noqa: E402

from pylate_eigenli.evaluation.methods import parse  # noqa: E402
from pylate_eigenli.evaluation.mteb_search import CompressedSearch  # noqa: E402
from pylate_eigenli.models.vision import VisionColBERT  # noqa: E402
from pylate_eigenli.tokens import collect  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "vidore_colqwen3.py"


def rankings(model: VisionColBERT, name: str, folder: Path) -> dict[str, list[str]]:
    """The pages for every question, best first, all computed at once."""
    method = parse(name).open(folder)
    method.add(collect(model.encode(PAGES.values(), is_query=False)))
    queries = collect(model.encode(QUESTIONS.values()))
    return {
        query: [list(PAGES)[i] for i in hits.rows]
        for query, hits in zip(QUESTIONS, method.search(queries, len(PAGES)), strict=True)
    }


@pytest.mark.parametrize("name", ["eigenli-8", "full"])
def test_every_language_finds_what_the_scores_say(
    name: str, colqwen3: VisionColBERT, tmp_path: Path
) -> None:
    # The best page for the one half of the questions, the worst for the other.
    relevant = {
        query: pages[-(i % 2)]
        for i, (query, pages) in enumerate(rankings(colqwen3, name, tmp_path).items())
    }
    task = LocalHr(relevant)
    # Chunks that do not fit evenly.
    search = CompressedSearch(colqwen3, name, chunk_size=3, name=colqwen3.model_name_or_path)
    (result,) = mteb.evaluate(search, task, cache=None, show_progress_bar=False).task_results
    assert len(task.hf_subsets) == 6
    assert {entry["hf_subset"] for entry in result.scores["test"]} == set(task.hf_subsets)
    for entry in result.scores["test"]:
        assert entry["ndcg_at_10"] == pytest.approx((1 + 1 / np.log2(1 + len(PAGES))) / 2, abs=1e-5)


def test_the_example_prints_the_paper_s_numbers_beside_its_own(
    checkpoints: Path,
    colqwen3: VisionColBERT,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 60
    found = rankings(colqwen3, "eigenli-8", tmp_path / "whole")
    relevant = {query: pages[0] for query, pages in found.items()}

    def get_tasks(tasks: list[str]) -> list[Any]:
        assert tasks == ["Vidore3HrRetrieval"]
        return [LocalHr(relevant).filter_languages(["eng", "fra"])]

    # The task itself is as large as the hub is far away.
    monkeypatch.setattr(mteb, "get_tasks", get_tasks)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    arguments = [str(EXAMPLE), str(checkpoints / "colqwen3"), "Vidore3HrRetrieval"]
    monkeypatch.setattr("sys.argv", arguments)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    lines = [line.split("│")[2:-1] for line in capsys.readouterr().out.splitlines() if "Hr" in line]
    rows = {cells[0].strip(): [float(cell) for cell in cells[1:]] for cells in lines}
    assert list(rows) == ["eigenli-8", "eigenli-16", "eigenli-32", "full"]
    assert rows["eigenli-8"] == [1, 0.5009, 1, 0.5926]
    assert rows["full"][1::2] == [0.602, 0.69]
    assert len(list(tmp_path.glob("vidore/**/Vidore3HrRetrieval.json"))) == 4
