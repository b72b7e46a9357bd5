"""Fifty clients at once: no errors, and every answer is that of a committed state."""

from __future__ import annotations

import pytest
import torch
from benchmarks.load import run


@pytest.mark.parametrize("flush", [False, True])
def test_every_answer_is_consistent_with_a_committed_state(flush: bool) -> None:
    # A process that flushes the smallest floats to zero, as some libraries make it, must expect of
    # the server, which does not, the same scores to the last bit.
    torch.set_flush_denormal(flush)
    try:
        report = run(seconds=4, clients=50, documents=200)
    finally:
        torch.set_flush_denormal(False)
    assert (report.errors, report.inconsistent) == (0, 0)
    assert report.answers > 0
    assert report.changes > 0
    assert report.states_seen > 1
