"""Fifty clients at once: no errors, and every answer is that of a committed state."""

from __future__ import annotations

from pylate_eigenli.benchmarks.load import run


def test_every_answer_is_consistent_with_a_committed_state() -> None:
    report = run(seconds=5, clients=50, documents=200)
    assert (report.errors, report.inconsistent) == (0, 0)
    assert report.answers > 0
    assert report.changes > 0
    assert report.states_seen > 1
