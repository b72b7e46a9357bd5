"""The pipeline benchmark measures every system that is installed, and says why others are not."""

from __future__ import annotations

import csv
import json

import pytest
from tiny_model import tiny_colbert

from pylate_eigenli.benchmarks import pipelines

WORDS = ["apple", "grass", "leaf", "sky", "sea", "fruit", "water", "plant", "sun"]


@pytest.fixture
def collection(tmp_path):
    folder = tmp_path / "tiny"
    (folder / "qrels").mkdir(parents=True)
    texts = [f"the {a} is a {b}" for a in WORDS for b in WORDS]
    with (folder / "corpus.jsonl").open("w") as file:
        file.writelines(json.dumps({"_id": str(i), "text": t}) + "\n" for i, t in enumerate(texts))
    with (folder / "queries.jsonl").open("w") as file:
        file.writelines(json.dumps({"_id": f"q{i}", "text": texts[i]}) + "\n" for i in range(5))
    rows = "".join(f"q{i}\t{i}\t1\n" for i in range(5))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return folder


def test_a_run_writes_a_table_and_plots(collection, tmp_path):
    pytest.importorskip("matplotlib")
    tiny_colbert(tmp_path / "bert", dim=48).save(str(tmp_path / "model"))
    out = tmp_path / "out"
    systems = ["MaxSim, all tokens", "EigenLI", "SV exact, 1 bit + MaxSim"]
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
