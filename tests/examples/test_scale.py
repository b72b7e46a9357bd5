"""The scale benchmark measures what it says, here on next to nothing."""

from __future__ import annotations

from benchmarks.scale import Task, exponents, measure


def test_bytes_grow_with_the_collection_and_nothing_is_left_behind(tmp_path):
    rows = [
        measure(Task(n, "binary", tokens=8, d=16, k=4, queries=2, folder=str(tmp_path)))
        for n in (100, 1500)
    ]
    assert [row.documents for row in rows] == [100, 1500]
    assert all(row.build_seconds > 0 and row.ms_per_query > 0 for row in rows)
    assert 0.5 < exponents(rows)["bytes"] <= 1
    assert not list(tmp_path.iterdir())
