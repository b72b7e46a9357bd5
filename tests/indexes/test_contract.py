"""What EigenLISVIndex promises, whatever searches or holds its documents."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from benchmarks import synthetic
from helpers.definition import maxsim
from helpers.hits import ids, overlap

from pylate_eigenli import EigenLIIndex, EigenLISVIndex, UnknownDocumentError
from pylate_eigenli.indexes.ann import accelerator
from pylate_eigenli.indexes.ann.sketch import SketchBackend

D, K, N = 24, 6, 120
LIBRARIES = {
    "voyager": "voyager",
    "faiss": "faiss",
    "milvus": "pymilvus",
    "qdrant": "qdrant_client",
}
collections = itertools.count()


@pytest.fixture(scope="module")
def documents():
    return synthetic.documents(N, tokens=20, d=D)


@pytest.fixture(scope="module")
def queries():
    return synthetic.queries(8, tokens=5, d=D)


@pytest.fixture(scope="module")
def exact(documents, queries, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("exact"))
    index = EigenLIIndex(folder, k=K, preset="paper", show_progress=False)
    index.add_documents(range(N), documents)
    return index(queries, k=10)


@pytest.fixture(params=["exact", "sketch", "voyager", "faiss", "milvus", "qdrant", "milvus server"])
def make(request, tmp_path, monkeypatch):
    """Make the index of this test, or open it again."""
    # Small collections would be scanned: let the ANN structures grow from the first document on.
    monkeypatch.setattr(accelerator, "_PENDING_DOCUMENTS", 1)
    monkeypatch.setattr(accelerator, "_PENDING_SHARE", 0.0)
    monkeypatch.setattr(SketchBackend, "fewest", 1)
    backend = request.param.split()[0]
    if backend in LIBRARIES:
        pytest.importorskip(LIBRARIES[backend])
    options = {"k": K, "dtype": "float32", "backend": backend, "show_progress": False}
    options["short_documents"] = "fill"  # an option that is given keeps the score the paper's
    if backend == "qdrant":
        options["uri"] = ":memory:"
    if request.param == "milvus server":
        options["uri"] = request.getfixturevalue("real_milvus").uri
        options["backend_options"] = {"collection": f"contract_{next(collections)}"}
    opened = []

    def make(**more):
        opened.append(EigenLISVIndex(str(tmp_path), **{**options, **more}))
        return opened[-1]

    make.options = options
    yield make
    for index in opened:
        index.close()


def test_a_search_finds_what_a_scan_finds_with_its_scores(make, documents, queries, exact):
    index = make()
    assert index(queries, k=5) == [[]] * 8
    assert len(index) == 0
    index.add_documents(range(N), documents).build()
    results = index(queries, k=10)
    assert overlap(results, exact) >= 0.95
    assert index.recall_against_exact(queries, k=10) >= 0.95
    scores = [{hit["id"]: hit["score"] for hit in hits} for hits in exact]
    for hits, known in zip(results, scores, strict=True):
        assert sorted((hit["score"] for hit in hits), reverse=True) == [h["score"] for h in hits]
        for hit in hits:
            if hit["id"] in known:
                assert hit["score"] == pytest.approx(known[hit["id"]], rel=2e-3)  # of float16
    assert all(len(hits) == N for hits in index(queries, k=N + 50))
    # A subset is complete, ids that are not there are ignored, and none at all find nothing.
    assert all(sorted(hits) == [5, 77, 99] for hits in ids(index(queries, 10, [5, 77, 99, 12345])))
    assert ids(index(queries[:2], 10, [[1], []])) == [[1], []]


def test_the_retriever_of_pylate_finds_what_a_search_finds(make, documents, queries, pylate):
    index = make().add_documents(range(20), documents[:20])
    retriever = pylate.retrieve.ColBERT(index=index)
    assert ids(retriever.retrieve(list(queries), k=4)) == ids(index(queries, 4))


def test_removed_documents_are_forgotten_and_later_ones_found(make, documents, queries):
    index = make().add_documents(range(100), documents[:100])
    best = ids(index(queries, k=3))
    gone = sorted({i for hits in best for i in hits})
    with pytest.raises(UnknownDocumentError, match="'nobody'"):
        index.remove_documents([gone[0], "nobody"])
    assert gone[0] in index
    index.remove_documents(gone)
    assert gone[0] not in index
    assert len(index) == 100 - len(gone)
    assert not set(gone) & {i for hits in ids(index(queries, k=50)) for i in hits}
    # Come back under other ids: found at once, also where the structure was made before.
    index.add_documents([f"new {i}" for i in gone], documents[torch.tensor(gone)])
    assert ids(index(queries, k=3)) == [[f"new {i}" for i in hits] for hits in best]
    index.update_documents([f"new {gone[0]}"], documents[110:111])
    assert len(index) == 100
    assert ids(index(queries, 3, [f"new {gone[0]}"])) == [[f"new {gone[0]}"]] * 8
    # An index that has lost all its documents is empty, and can be filled again.
    index.remove_documents([*set(range(100)).difference(gone), *(f"new {i}" for i in gone)])
    assert index.build()(queries, k=3) == [[]] * 8
    assert ids(index.add_documents([7], documents[7:8])(queries[:1], k=3)) == [[7]]


def test_ids_are_told_apart_and_given_back_as_they_were(make, documents):
    names = [1, "1", -7, 'a "quoted" \\ name', "naïve 漢字 \n", ""]
    index = make().add_documents(names, documents[: len(names)])
    assert len(index) == len(names)
    assert sorted(map(repr, ids(index(documents[0], k=10))[0])) == sorted(map(repr, names))
    assert ids(index(documents[0], 10, names[3:5]))[0] in ([names[3], names[4]], names[4:2:-1])
    index.remove_documents(["1"])
    assert 1 in index
    assert "1" not in index
    with pytest.raises(ValueError, match="twice"):
        index.add_documents(["x", "x"], documents[:2])


def test_by_default_k_is_at_most_the_dimension(make, documents):
    index = make(k=None).add_documents(range(N), documents)
    assert index.settings.k == min(32, documents[0].shape[1])
    assert index.add_documents(["again"], documents[:1]).settings.k == index.settings.k


def test_candidates_are_re_ranked_from_what_is_kept(make, documents, queries):
    index = make(keep_tokens="float16").add_documents(range(N), documents)
    results = index(queries, k=5, rerank="maxsim", n_candidates=N)
    scores = maxsim(queries, documents)
    for hits, row in zip(results, scores, strict=True):
        assert [hit["id"] for hit in hits] == row.topk(5).indices.tolist()
        assert hits[0]["score"] == pytest.approx(row.max().item(), rel=2e-3)
    assert ids(index(queries, k=5, rerank="eigenli")) == ids(index(queries, k=5))
    (rows,), none, others = index.get_documents_embeddings([[3], [], [5, 3]])
    np.testing.assert_allclose(rows, documents[3].numpy(), atol=1e-3)
    assert none == []
    np.testing.assert_array_equal(others[1], rows)
    with pytest.raises(UnknownDocumentError, match="'b'"):
        index.get_documents_embeddings([["b"]])


def test_an_index_is_the_same_after_reopening(make, documents, queries):
    if make.options["backend"] == "qdrant":
        make.options["uri"] = None  # in a folder beside the index
    index = make(keep_bases=True).add_documents(range(20), documents[:20])
    before = index(queries, k=10, rerank="eigenli")
    index.close()
    del make.options["backend"]  # it is remembered
    again = make()
    assert len(again) == 20
    assert again(queries, k=10, rerank="eigenli") == before
    again.close()


def test_overriding_leaves_nothing(make, documents):
    make().add_documents(range(5), documents[:5]).close()
    index = make(override=True).add_documents(["only"], documents[:1])
    assert len(index) == 1
    assert 3 not in index


def test_filters_idf_and_background_give_the_scores_of_a_scan(make, documents, queries, tmp_path):
    options = {"filter": "ridge", "idf": 0.4, "background": 0.75, "keep_bases": True}
    plain = EigenLISVIndex(str(tmp_path), "plain", k=K, dtype="float32", **options)
    expected = plain.add_documents(range(N), documents)
    index = make(**options).add_documents(range(N), documents)
    for rerank in ("none", "eigenli"):
        known = expected(queries, k=N, rerank=rerank)
        scores = [{hit["id"]: hit["score"] for hit in hits} for hits in known]
        for hits, of_scan in zip(index(queries, k=5, rerank=rerank), scores, strict=True):
            assert len(hits) == 5
            for hit in hits:
                assert hit["score"] == pytest.approx(of_scan[hit["id"]], rel=1e-3, abs=1e-4)


def test_a_document_with_no_direction_left_is_ranked_like_the_others(make, documents, queries):
    tokens = [*documents[:10], documents[10, :1], *documents[11:20]]
    options = {"centering": "both", "keep_bases": True}
    index = make(**options).add_documents(range(20), tokens)
    for ours, theirs in zip(
        index(queries, k=20, rerank="eigenli"), index(queries, k=20), strict=True
    ):
        scores = {hit["id"]: hit["score"] for hit in theirs}
        assert len(scores) == 20
        assert all(hit["score"] == pytest.approx(scores[hit["id"]], rel=2e-3) for hit in ours)


def test_vectors_and_queries_multiply_to_the_scores(make, documents, queries):
    index = make(preset="plus")
    with pytest.raises(ValueError, match="holds no documents"):
        index.encode_queries(queries)
    assert list(index.vectors()) == []
    index.add_documents(range(N), documents)
    batches = list(index.vectors(batch_size=50))
    assert sorted(i for held, _ in batches for i in held) == list(range(N))
    encoded = index.encode_queries(queries)
    for (hits,), vector, constant in zip(
        (index(query, k=N) for query in queries), encoded.vectors, encoded.constants, strict=True
    ):
        scores = {hit["id"]: hit["score"] for hit in hits}
        for held, vectors in batches:
            products = vectors @ vector + constant
            for i, product in zip(held, products.tolist(), strict=True):
                assert scores.get(i, product) == pytest.approx(product, abs=1e-4)
    ((chosen, vectors),) = index.vectors([7, 3])
    assert chosen == [7, 3]
    known = {i: v for held, part in batches for i, v in zip(held, part, strict=True)}
    np.testing.assert_allclose(vectors, [known[7], known[3]], atol=1e-6)
    with pytest.raises(UnknownDocumentError, match="'nobody'"):
        list(index.vectors(["nobody"]))


def test_the_same_questions_have_the_same_answers_or_a_clear_error(make, documents):
    index = make()
    assert index.generation == 0
    index.add_documents(range(5), documents[:5])
    before = index.generation
    index.remove_documents([1])
    assert index.generation > before > 0
    remote = "uri" in make.options and make.options["uri"] != ":memory:"
    if remote:
        with pytest.raises(ValueError, match="the size of the documents is unknown"):
            _ = index.nbytes
    else:
        assert index.nbytes > 0
    assert index.in_database == (make.options["backend"] in ("milvus", "qdrant"))
    if index.in_database:
        with pytest.raises(ValueError, match="by itself"):
            index.compact()
        with (
            pytest.raises(ValueError, match="there is no commit to accompany"),
            index.accompanied(lambda transaction: None),
        ):
            pass
    else:
        assert len(index.compact()) == 4
