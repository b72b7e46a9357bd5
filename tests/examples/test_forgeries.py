"""Forged index files end in an error that names them, and the fuzzer finds those that do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def forgeries(*arguments: str, broken: str = "pass") -> tuple[int, dict]:
    """Run the benchmark in a process of its own, which forks others; return code and report."""
    program = (
        "import sys; from benchmarks import forgeries; "
        f"{broken}; sys.exit(forgeries.main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "examples")])},
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_forged_files_end_in_errors_that_name_them():
    kinds = ["eigenli int8", "single vectors", "projected", "voyager", "texts", "pages"]
    code, report = forgeries("--share", "0.02", "--kinds", *kinds)
    assert report["wrong"] == []
    assert sum(report["forgeries"].values()) > 100
    assert code == 0


@pytest.mark.parametrize(
    ("kind", "only", "at_least"),
    [
        ("eigenli", "meta.settings.k =", 18),  # of an index that is then added to
        ("binary", "document.floor of", 4),  # of other columns than the next segment
        ("single vectors", "vector_scale all nan", 2),
        ("single vectors", "meta.dim =", 18),
        ("standardised", "standardise.centre huge", 1),
        ("faiss", "meta.settings.backend is missing", 1),
        ("texts", "meta.catalogue =", 18),
        ("texts", "CREATE VIEW", 2),  # one without an end
    ],
)
def test_forgeries_that_once_ended_in_raw_errors_are_named(kind, only, at_least):
    _, report = forgeries("--kinds", kind, "--only", only)
    assert report["wrong"] == []
    assert report["forgeries"][kind] >= at_least


def test_a_reader_that_trusts_offsets_is_found_out():
    trusting = (
        "from pylate_eigenli.storage.segment_file import SegmentFile; "
        "SegmentFile._offsets = lambda self, name, end: self.read(name)"
    )
    code, report = forgeries("--kinds", "eigenli", "--only", ".offsets huge", broken=trusting)
    assert code == 1
    assert report["wrong"]
