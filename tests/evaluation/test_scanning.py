"""A corpus in parts is searched as if it were whole, and parts come back from disk as they were."""

from __future__ import annotations

import numpy as np
import pytest

from pylate_eigenli.evaluation.methods import RelativeMethod, method
from pylate_eigenli.evaluation.scanning import Scan
from pylate_eigenli.evaluation.stored_parts import StoredParts
from pylate_eigenli.tokens import collect
from pylate_eigenli.vectors.ranking import top_k

NAMES = ["full", "eigenli-8", "eigenli-sv-8", "plus", "plus-8", "ward-4", "muvera"]


@pytest.fixture(scope="module")
def items():
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((int(m), 16)) for m in rng.integers(1, 30, 50)]
    # Equal documents, so that ties have to be broken.
    return [x / np.linalg.norm(x, axis=1, keepdims=True) for x in rows + rows[:20]]


def scan(name, items, parts):
    searcher = Scan(method(name), parts)
    for begin, end in ((0, 1), (1, 33), (33, 70)):
        searcher.append(f"{begin}", lambda part=items[begin:end]: collect(part))
    return searcher


@pytest.mark.parametrize("name", NAMES)
class TestEveryMethod:
    def test_parts_are_searched_like_the_whole(self, name, items):
        queries, chosen = collect(items[7:12], names="query"), method(name)
        encoded = chosen.encode_documents(collect(items))
        if isinstance(chosen, RelativeMethod):
            chosen = chosen.among([encoded])
        scores = chosen.scores(chosen.encode_queries(queries), encoded)
        for hits, row in zip(scan(name, items, {}).search(queries, k=9), scores, strict=True):
            best = top_k(row, 9)
            np.testing.assert_allclose(hits.scores, row[best], rtol=1e-4, atol=1e-5)
            assert len(set(hits.rows.tolist())) == 9
            np.testing.assert_allclose(row[hits.rows], hits.scores, rtol=1e-4, atol=1e-5)

    def test_candidates_get_the_scores_of_a_search(self, name, items):
        queries, searcher = collect(items[7:10], names="query"), scan(name, items, {})
        everything = [dict(zip(*hits, strict=True)) for hits in searcher.search(queries, k=70)]
        candidates = [np.array([69, 3, 40]), np.array([], np.int64), np.array([0])]
        found = searcher.search(queries, 2, candidates)
        assert [len(hits.rows) for hits in found] == [2, 0, 1]
        for hits, scores, rows in zip(found, everything, candidates, strict=True):
            assert set(hits.rows.tolist()) <= set(rows.tolist())
            assert hits.scores.tolist() == sorted((scores[r] for r in rows), reverse=True)[:2]

    def test_parts_come_back_from_disk_as_they_were(self, name, items, tmp_path):
        queries = collect(items[7:12], names="query")
        expected = scan(name, items, {}).search(queries, k=5)
        scan(name, items, StoredParts(tmp_path))
        kept = Scan(method(name), StoredParts(tmp_path))
        for key in ("0", "1", "33"):
            kept.append(key, pytest.fail)
        for hits, before in zip(kept.search(queries, k=5), expected, strict=True):
            np.testing.assert_array_equal(hits.rows, before.rows)
            np.testing.assert_array_equal(hits.scores, before.scores)


def test_what_cannot_be_stored_is_named(tmp_path):
    parts = StoredParts(tmp_path)
    with pytest.raises(TypeError, match="a set cannot be stored"):
        parts["x"] = {1, 2}
    assert "x" not in parts
