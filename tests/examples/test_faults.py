"""The fault benchmark finds nothing wrong, and finds what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def faults(*arguments: str, broken: str = "pass") -> tuple[int, dict]:
    """Run the benchmark in a process of its own, which forks others; return code and report."""
    program = (
        f"import sys; from benchmarks import faults; {broken}; sys.exit(faults.main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "--kills", "3", "--cuts", "20", "--no-calls", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "examples")])},
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["single vectors", "pages"])
def test_nothing_is_lost(kind):
    code, report = faults("--kinds", kind)
    assert (report["kills"], report["power_cuts"], report["wrong"]) == (3, 20, [])
    assert code == 0


def test_a_writer_that_syncs_nothing_is_found_out():
    lazy = (
        "from pylate_eigenli.storage import disk; "
        "import os; unsynced = type('Unsynced', (), {'__getattr__': lambda _, name: "
        "(lambda _: None) if name == 'fsync' else getattr(os, name)})(); disk.os = unsynced"
    )
    code, report = faults("--kinds", "eigenli", broken=lazy)
    assert code == 1
    assert any("power cut" in line for line in report["wrong"])
