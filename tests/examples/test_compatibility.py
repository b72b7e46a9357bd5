"""PyLate's own examples and mteb's own tasks work with our indexes."""

from __future__ import annotations

import pytest
from benchmarks.compatibility import run_examples, run_tasks

from pylate_eigenli import EigenLIIndex


def test_examples_of_pylate(tiny_model, tmp_path, monkeypatch):
    pytest.importorskip("pylate")
    monkeypatch.chdir(tmp_path)
    assert run_examples(EigenLIIndex, str(tiny_model)) == []


@pytest.mark.parametrize("method", ["eigenli-8", "full"])
def test_tasks_of_mteb(method):
    assert run_tasks(method) == []
