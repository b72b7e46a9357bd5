"""The example programs run as they are, here with a tiny model in place of a hub's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_collection import tiny_collection
from tiny_model import tiny_colbert

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
NEEDS = {"milvus": "milvus_lite", "single_vector_voyager": "voyager"}
ARGUMENTS = {
    "reproduce_beir": ["tiny", "--models", "MODEL"],
    "study": ["tiny", "--model", "MODEL", "-k", "4"],
    "mteb_eval": ["MODEL", "LocalRetrieval", "LocalReranking"],
}
# Runs a program with the tests' tasks among those that mteb knows.
WITH_LOCAL_TASKS = """
import runpy, sys
from local_tasks import Known, Reranked
from mteb.get_tasks import _TASKS_REGISTRY
_TASKS_REGISTRY.update({task.metadata.name: task for task in (Known, Reranked)})
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# Run by tests/vision/test_vidore.py.
ELSEWHERE = {"vidore_colqwen3"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_colbert(folder, dim=48).save(str(folder / "saved"))
    return str(folder / "saved")


@pytest.mark.parametrize("name", sorted({path.stem for path in EXAMPLES.glob("*.py")} - ELSEWHERE))
def test_example_runs(name, model, tmp_path):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    program = EXAMPLES / f"{name}.py"
    assert len(program.read_text().splitlines()) <= 60
    tiny_collection(tmp_path / "tiny")
    arguments = [model if a == "MODEL" else a for a in ARGUMENTS.get(name, ["MODEL"])]
    start = ["-c", WITH_LOCAL_TASKS] if name == "mteb_eval" else []
    paths = [*sys.path, str(HERE), str(HERE / "evaluation")]
    done = subprocess.run(
        [sys.executable, *start, str(program), *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "MTEB_CACHE": str(tmp_path), "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
