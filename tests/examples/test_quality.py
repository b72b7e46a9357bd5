"""The quality benchmark prints one table per model, and one beside the paper."""

from __future__ import annotations

import re

import numpy as np
import pytest
from benchmarks import quality
from helpers.tiny_collection import tiny_collection

from pylate_eigenli.evaluation import beir


@pytest.fixture
def cached(tmp_path):
    """Two collections and, in a cache, token embeddings of their texts in another order."""
    rng = np.random.default_rng(0)
    for name in ("scifact", "arguana"):
        collection = beir.load(tiny_collection(tmp_path / name))
        for side, texts in (("docs", collection.corpus), ("queries", collection.queries)):
            items = [rng.standard_normal((4, 32)) for _ in texts]
            if side == "docs":
                documents = items
            else:
                items = documents[: len(texts)]
            items = [item / np.linalg.norm(item, axis=1, keepdims=True) for item in items]
            np.savez(
                tmp_path / f"tiny_{name}_{side}.npz",
                tokens=np.concatenate(items[::-1]).astype(np.float16),
                offsets=np.arange(0, 4 * len(items) + 1, 4),
                ids=list(texts)[::-1],
            )
    return tmp_path


def run(folder, *arguments):
    collections = ["--collections", str(folder / "scifact"), str(folder / "arguana")]
    where = ["--cache", str(folder), "--out", str(folder / "out")]
    quality.main(["--models", "tiny=nowhere", *collections, *where, *arguments])


def test_rows_are_methods_and_columns_collections(cached, capsys):
    run(cached, "--methods", "full", "eigenli", "ward-2", "-k", "2", "4")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| nDCG@10, tiny | bytes / document | scifact | arguana | ratio")
    assert [line.split(" | ")[0] for line in lines[2:6]] == [
        "| full",
        "| eigenli-2",
        "| eigenli-4",
        "| ward-2",
    ]
    # Queries are documents.
    assert lines[2].split(" | ")[2:4] == ["1.0000", "1.0000"]
    ratio, low, high = map(float, re.findall(r"[0-9.]+", lines[3].split(" | ")[-1]))
    assert 0 < low <= ratio <= high


def test_results_are_kept(cached, capsys):
    run(cached, "--methods", "full")
    first = capsys.readouterr().out
    for path in (cached / "out").rglob("full.json"):
        path.write_text(path.read_text().replace('"tiny"', '"kept"'))
    run(cached, "--methods", "full")
    assert capsys.readouterr().out == first.replace("tiny", "kept")


def test_shares_of_maxsim_are_drawn_by_size(cached):
    vectors = ["eigenli-sv-2", "eigenli-sv-2:dtype=binary"]
    chosen = ["--methods", "full", "eigenli", *vectors, "-k", "2", "4"]
    run(cached, *chosen, "--plot", str(cached / "shares.svg"))
    drawn = (cached / "shares.svg").read_text()
    for series in ("all tokens, MaxSim", "the paper's EigenLI", "the paper's EigenLI-SV", "1 bit"):
        assert f"<!-- {series} -->" in drawn
    with pytest.raises(ValueError, match="add full to --methods"):
        run(cached, "--methods", "eigenli-2", "--plot", str(cached / "shares.svg"))


def test_the_paper_s_numbers_are_beside_ours(cached, capsys):
    chosen = ["--methods", "full", "eigenli-8", "eigenli-sv-8:dtype=binary"]
    run(cached, "--paper", "answerai-colbert-small", *chosen, "--ignore-identical-ids", "arguana")
    _, table = capsys.readouterr().out.split("\n\n")[:2]
    full, eigenli, binary = table.splitlines()[2:5]
    assert " / 0.7" in full
    assert len(eigenli.split(" / ")) == 5
    assert " / " not in binary


def test_mistakes_are_found_before_anything_is_measured(cached):
    with pytest.raises(ValueError, match="no model 'tiny'"):
        run(cached, "--paper", "tiny")
    with pytest.raises(ValueError, match="unknown method 'wart'"):
        run(cached, "--methods", "wart")
    (cached / "tiny_scifact_docs.npz").unlink()
    np.savez(cached / "tiny_scifact_docs.npz", tokens=np.ones((1, 2)), offsets=[0, 1], ids=["x"])
    with pytest.raises(ValueError, match="has no embeddings of '0'"):
        run(cached, "--methods", "full")
