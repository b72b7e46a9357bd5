"""The example programs run as they are, here with a tiny model in place of a hub's."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
from helpers.tiny_collection import tiny_collection
from helpers.tiny_model import tiny_model
from typer.testing import CliRunner

from pylate_eigenli.cli import app

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {"milvus": "milvus_lite", "single_vector_voyager": "voyager"}
# All programs but these need PyLate.
MULTI_VECTOR = {"sentence_transformers_index"}
# These work with either library.
ANY_LIBRARY = {"haystack_pipeline", "langchain_retriever", "llama_index_retriever"}
ARGUMENTS = {
    "study": ["tiny", "--model", "MODEL", "-k", "4"],
    "mteb_eval": ["MODEL", "LocalRetrieval", "LocalReranking"],
    "train_with_eigenli": ["MODEL", "--steps", "2"],
}
# Run by tests/evaluation/test_vidore.py.
ELSEWHERE = {"vidore_colqwen3"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_model(folder, dim=48).save(str(folder / "saved"))
    return str(folder / "saved")


@pytest.mark.parametrize("name", sorted({path.stem for path in EXAMPLES.glob("*.py")} - ELSEWHERE))
def test_example_runs(name, model, tmp_path, monkeypatch, capsys, request):
    if name not in ANY_LIBRARY:
        request.getfixturevalue("multi_vector" if name in MULTI_VECTOR else "pylate")
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    program = EXAMPLES / f"{name}.py"
    assert len(program.read_text().splitlines()) <= (40 if name in ANY_LIBRARY else 60)
    tiny_collection(tmp_path / "tiny")
    arguments = [model if a == "MODEL" else a for a in ARGUMENTS.get(name, ["MODEL"])]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(program), *arguments])
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path))
    if name == "mteb_eval":
        from helpers.local_tasks import Known, Reranked
        from mteb.get_tasks import _TASKS_REGISTRY

        for task in (Known, Reranked):
            monkeypatch.setitem(_TASKS_REGISTRY, task.metadata.name, task)
    # Within this process: importing the libraries takes longer than the programs themselves.
    runpy.run_path(str(program), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_the_image_is_built_of_what_the_project_has():
    """Nobody builds it here: its extras, its command and the options of that command exist."""
    lines = (EXAMPLES / "Dockerfile").read_text()
    project = (EXAMPLES.parent / "pyproject.toml").read_text()
    (extras,) = re.findall(r"/source\[(.+?)\]", lines)
    assert all(f"\n{extra} = [" in project for extra in extras.split(","))
    instructions = dict(re.findall(r"^(ENTRYPOINT|CMD) (.+)$", lines, re.MULTILINE))
    (program,), command = map(json.loads, (instructions["ENTRYPOINT"], instructions["CMD"]))
    assert f"\n{program} = " in project
    shown = CliRunner().invoke(app, [command[0], "--help"]).stdout
    assert all(word in shown for word in command if word.startswith("--"))
