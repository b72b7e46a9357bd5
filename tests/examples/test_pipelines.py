"""The pipeline benchmark measures every system that is installed, and says why others are not."""

from __future__ import annotations

import csv

import pytest
from benchmarks import pipelines
from helpers.tiny_collection import tiny_collection
from helpers.tiny_model import tiny_model


def test_a_run_writes_a_table_and_plots(tmp_path):
    pytest.importorskip("matplotlib")
    collection = tiny_collection(tmp_path / "tiny")
    tiny_model(tmp_path / "bert", dim=48).save(str(tmp_path / "model"))
    out = tmp_path / "out"
    systems = ["MaxSim, NumKong", "EigenLI", "SV, 1 bit + MaxSim"]
    pipelines.main(
        [
            str(collection),
            "--model",
            str(tmp_path / "model"),
            "--out",
            str(out),
            "--systems",
            *systems,
        ]
    )
    with (out / "pipelines-tiny.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["system"] for row in rows] == systems
    assert all(0 < float(row["ndcg_at_10"]) <= 1 for row in rows)
    assert all(float(row["bytes_per_document"]) > 0 for row in rows)
    assert (out / "pipelines-tiny-size.png").stat().st_size > 1000
    assert (out / "pipelines-tiny.md").read_text().count("\n") == 2 + len(systems)
