"""The example programs run as they are, here with a tiny model in place of a hub's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_model import tiny_colbert

EXAMPLES = Path(__file__).parent.parent / "examples"
NEEDS = {"single_vector_voyager": "voyager"}
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
    done = subprocess.run(
        [sys.executable, str(program), model], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
