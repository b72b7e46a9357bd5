"""What only the sketches have to get right."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import synthetic
from helpers.cases import N, packed_documents, packed_queries

from pylate_eigenli import EigenLISVIndex
from pylate_eigenli.indexes.ann import accelerator
from pylate_eigenli.indexes.ann.blob import read_blob, write_blob
from pylate_eigenli.indexes.ann.sketch import SketchBackend, SketchOptions

DOCUMENTS = 400


@pytest.fixture
def built(tmp_path, monkeypatch):
    """An index with sketches of documents that are usually too few for them."""
    monkeypatch.setattr(accelerator, "_PENDING_DOCUMENTS", 1)
    monkeypatch.setattr(SketchBackend, "fewest", 1)

    def make(**options):
        index = EigenLISVIndex(str(tmp_path), k=6, backend="sketch", show_progress=False, **options)
        return index.add_documents(range(DOCUMENTS), synthetic.documents(DOCUMENTS, 20, d=24))

    return make


def backend(vectors=None, **options):
    vectors = packed_documents() if vectors is None else vectors
    made = SketchBackend(vectors.shape[1], len(vectors), SketchOptions(**options))
    made.train(vectors)
    made.add(np.arange(len(vectors)), vectors)
    return made


@pytest.mark.parametrize("dtype", ["int8", "int4", "binary"])
def test_scores_are_those_of_a_scan_to_the_last_bit(built, dtype):
    index = built(dtype=dtype, backend_options={"candidates": 100})
    assert "ann" in index._snapshot.collection
    queries = synthetic.queries(6, tokens=5, d=24)
    scanned = index(queries, k=DOCUMENTS, subset=[list(range(DOCUMENTS))] * 6)
    for hits, known in zip(index(queries, k=10), scanned, strict=True):
        scores = {hit["id"]: hit["score"] for hit in known}
        assert len(hits) == 10
        assert all(hit["score"] == scores[hit["id"]] for hit in hits)
    assert index.recall_against_exact(queries, k=10) >= 0.95


def test_few_documents_are_scanned_instead(tmp_path, monkeypatch):
    monkeypatch.setattr(accelerator, "_PENDING_DOCUMENTS", 1)
    index = EigenLISVIndex(str(tmp_path), k=6, backend="sketch", show_progress=False)
    index.add_documents(range(50), synthetic.documents(50, 20, d=24))
    assert "ann" not in index._snapshot.collection


def test_more_candidates_find_more_and_can_be_asked_for_when_opening(built, tmp_path):
    queries = synthetic.queries(12, tokens=5, d=24)
    with built() as index:
        assert index.recall_against_exact(queries, k=10) >= 0.95  # by default half of so few
    found = {}
    for candidates in (1, DOCUMENTS):
        options = {"candidates": candidates}
        with EigenLISVIndex(str(tmp_path), backend_options=options, show_progress=False) as index:
            found[candidates] = index.recall_against_exact(queries, k=10)
    assert found[1] <= found[DOCUMENTS] == 1


def test_the_shortlist_grows_with_the_collection_and_the_results():
    made = backend()
    assert made.shortlist(1) == int(20 * np.sqrt(N))
    assert made.shortlist(100) == 1000
    assert backend(candidates=70).shortlist(5) == 70


def test_a_sample_of_few_documents_is_replaced_once():
    few = backend(packed_documents()[:40])
    assert not few.outgrown(100)
    assert few.outgrown(1000)
    many = SketchBackend(8, 20_000, SketchOptions())
    # As many as an even sample of 20,000 has.
    many.train(np.random.default_rng(0).standard_normal((6667, 8), np.float32))
    assert not many.outgrown(10**6)


@pytest.mark.parametrize("name", ["dim", "width", "trained_on", "vectors"])
@pytest.mark.parametrize("size", [-1, 10**6, "7", True])
def test_bytes_of_other_sizes_than_their_header_says_are_refused(name, size):
    header, body = read_blob(backend().to_bytes())
    if name == "trained_on" and size == 10**6:
        return  # only whether there are any matters to the rest
    forged = write_blob({**header, name: size}, lambda stream: stream.write(body.data))
    with pytest.raises(ValueError):  # noqa: PT011
        SketchBackend.from_bytes(forged, SketchOptions()).search(packed_queries(), 10)


def test_a_large_batch_is_scanned_where_that_is_faster(built, monkeypatch):
    index = built()
    queries = synthetic.queries(40, tokens=5, d=24)
    searched = []
    search = SketchBackend.search
    monkeypatch.setattr(
        SketchBackend, "search", lambda self, x, k: searched.append(len(x)) or search(self, x, k)
    )
    index(queries, k=10)
    assert searched == []
    index(queries[:15], k=10)
    assert searched == [15]
