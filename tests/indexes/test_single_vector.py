"""EigenLISVIndex: one vector per document gives what the subspaces give."""

from __future__ import annotations

import errno

import numpy as np
import pytest
import torch
from benchmarks import synthetic
from helpers.definition import maxsim
from helpers.hits import ids, overlap

from pylate_eigenli import (
    EigenLIIndex,
    EigenLISVIndex,
    SVProjection,
    TokenProjection,
    UnknownDocumentError,
)
from pylate_eigenli.indexes.ann import accelerator
from pylate_eigenli.spectral.subspace import compress
from pylate_eigenli.vectors.packing import pack_subspaces

D, K = 24, 6


@pytest.fixture(scope="module")
def documents():
    return synthetic.documents(300, tokens=20, d=D)


@pytest.fixture(scope="module")
def queries():
    return synthetic.queries(8, tokens=5, d=D)


@pytest.fixture(scope="module")
def exact(documents, queries, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("exact"))
    index = EigenLIIndex(folder, k=K, preset="paper", show_progress=False)
    index.add_documents(range(len(documents)), documents)
    return index(queries, k=10)


@pytest.fixture
def make(tmp_path):
    def make(**options):
        # An option that is given, like this default, keeps the score the paper's.
        given = {"k": K, "show_progress": False, "dtype": "float32", "short_documents": "fill"}
        options = {**given, **options}
        return EigenLISVIndex(str(tmp_path), **options)

    return make


@pytest.mark.parametrize("backend", ["voyager", "faiss"])
def test_no_more_candidates_take_memory_than_there_are_documents(
    backend, make, documents, queries
) -> None:
    index = make(backend=backend).add_documents(range(300), documents).build()
    index.remove_documents([7])
    # As many numbers for each query would fill 80 TB.
    assert ids(index(queries, k=10, n_candidates=10**12)) == ids(index(queries, 10, range(300)))


class TestTheScoreIsOneInnerProduct:
    def test_float32_vectors_give_the_scores_of_the_subspaces(
        self, make, documents, queries, exact
    ):
        results = make().add_documents(range(300), documents)(queries, k=10)
        assert ids(results) == ids(exact)
        for ours, theirs in zip(results, exact, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                assert a["score"] == pytest.approx(b["score"], rel=2e-3)  # theirs is float16

    @pytest.mark.parametrize(
        ("dtype", "least"), [("float16", 1.0), ("int8", 0.95), ("int4", 0.8), ("binary", 0.4)]
    )
    def test_smaller_vectors_find_most_of_it(self, make, documents, queries, exact, dtype, least):
        index = make(dtype=dtype).add_documents(range(300), documents)
        assert overlap(index(queries, k=10), exact) >= least


class TestReRanking:
    @pytest.mark.parametrize("keep", ["float16", "int8"])
    def test_by_maxsim_gives_maxsim_scores(self, make, documents, queries, keep):
        index = make(keep_tokens=keep).add_documents(range(300), documents)
        results = index(queries, k=5, rerank="maxsim", n_candidates=300)
        scores = maxsim(queries, documents)
        for hits, row in zip(results, scores, strict=True):
            best = row.topk(5).values
            for hit, value in zip(hits, best.tolist(), strict=True):
                assert hit["score"] == pytest.approx(row[hit["id"]].item(), rel=2e-2)
                assert hit["score"] == pytest.approx(value, rel=2e-2)

    @pytest.mark.parametrize("keep", [{"keep_bases": True}, {"keep_tokens": "float16"}])
    def test_by_eigenli_undoes_the_rounding_of_the_codes(
        self, make, documents, queries, exact, keep
    ):
        index = make(dtype="binary", **keep).add_documents(range(300), documents)
        results = index(queries, k=10, rerank="eigenli", n_candidates=300)
        assert ids(results) == ids(exact)

    def test_asks_for_tokens_that_are_not_kept(self, make, documents, queries):
        asked = []

        def tokens_of(wanted):
            asked.append(len(wanted))
            return [documents[i] for i in wanted]

        kept = make(keep_tokens="float16", index_name="kept").add_documents(range(300), documents)
        index = make(tokens_of=tokens_of).add_documents(range(300), documents)
        for rerank in ("maxsim", "eigenli"):
            results = index(queries, k=5, rerank=rerank, n_candidates=20)
            assert ids(results) == ids(kept(queries, k=5, rerank=rerank, n_candidates=20))
        assert set(asked) == {20}

    def test_is_refused_if_other_documents_than_asked_for_are_given(self, make, documents, queries):
        given = [documents[0]]
        index = make(tokens_of=lambda ids: given).add_documents(range(300), documents)
        with pytest.raises(ValueError, match="tokens_of gave 1 documents for 20 ids"):
            index(queries[:1], k=5, rerank="maxsim", n_candidates=20)
        given[:] = [documents[0][:, :5]] * 20
        for rerank in ("maxsim", "eigenli"):
            with pytest.raises(ValueError, match="dimension 5, expected 24"):
                index(queries[:1], k=5, rerank=rerank, n_candidates=20)

    def test_tokens_that_float16_cannot_hold_are_refused(self, make, documents, queries):
        documents = 1e5 * documents
        with pytest.raises(ValueError, match=r"document 7: token 16 has values beyond 65,504"):
            make(keep_tokens="float16").add_documents([7], documents[:1])
        index = make(keep_tokens="int8").add_documents(range(300), documents)
        for hits in index(queries, k=5, rerank="maxsim"):
            assert np.isfinite([hit["score"] for hit in hits]).all()

    def test_without_anything_to_score_from_is_refused(self, make, documents):
        index = make().add_documents(range(300), documents)
        for rerank in ("maxsim", "eigenli"):
            with pytest.raises(ValueError, match="needs keep_"):
                index(documents[0], rerank=rerank)
        with pytest.raises(ValueError, match="rerank must be one of"):
            index(documents[0], rerank="bm25")
        with pytest.raises(ValueError, match="n_candidates must be a positive integer, got -3"):
            index(documents[0], n_candidates=-3)


class TestProjection:
    def test_is_saved_with_the_index_and_keeps_the_best(self, make, documents, queries, exact):
        subspaces = compress(documents, K)
        packed = pack_subspaces(subspaces.bases, subspaces.offsets, subspaces.floors.numpy())
        projection = SVProjection.fit([packed], 256)
        index = make(projection=projection).add_documents(range(200), documents[:200])
        index.close()
        index = make().add_documents(range(200, 300), documents[200:])
        assert index.settings.projection == 256
        assert overlap(index(queries, k=10), exact) >= 0.8

    def test_of_tokens_is_saved_too_and_used_for_documents_and_queries(
        self, make, documents, queries
    ):
        # Half of the dimensions hold next to nothing: without them everything stays the same.
        scale = torch.cat([torch.ones(D // 2), torch.full((D - D // 2,), 1e-3)])
        documents, queries = documents * scale, queries * scale
        plain = make(index_name="plain").add_documents(range(300), documents)
        projection = TokenProjection.fit(documents, dim=D // 2)
        options = {"token_projection": projection, "keep_tokens": "float16"}
        make(**options).add_documents(range(200), documents[:200]).close()
        index = make().add_documents(range(200, 300), documents[200:])
        assert overlap(index(queries, k=10), plain(queries, k=10)) >= 0.95
        assert ids(index(queries, k=5, rerank="eigenli")) == ids(index(queries, k=5))

    @pytest.mark.parametrize("fitted_to", ["plus", "paper"])
    def test_chooses_among_the_presets_whose_vectors_it_was_fitted_to(
        self, tmp_path, documents, queries, fitted_to
    ):
        given = {"show_progress": False, "preset": fitted_to}
        subspaces = EigenLIIndex(str(tmp_path), "subspaces", k=K, **given)
        subspaces.add_documents(range(300), documents)
        projection = SVProjection.fit((vectors for _, vectors in subspaces.vectors()), 256)
        for number in (10, 300):
            name = f"projected {number}"
            index = EigenLISVIndex(str(tmp_path), name, projection=projection, show_progress=False)
            index.add_documents(range(number), documents[:number])
            assert index.settings.standardise == (fitted_to == "plus")
            assert EigenLISVIndex(str(tmp_path), name)(queries) == index(queries)
        other = {"plus": "paper", "paper": "plus"}[fitted_to]
        index = EigenLISVIndex(str(tmp_path), "other", preset=other, projection=projection)
        with pytest.raises(ValueError, match=r"fitted to vectors of .* same preset"):
            index.add_documents(range(300), documents)
        assert index.generation == 0

    @pytest.mark.parametrize("d", [640, 4096])
    def test_of_tokens_serves_the_default_of_models_of_large_dimension(self, tmp_path, d):
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randn(60, 4, d, generator=generator) + 1
        documents = torch.nn.functional.normalize(tokens, dim=-1)
        directions = torch.linalg.qr(documents[::3, 0].mT)[0].mT.contiguous()
        projection = TokenProjection(directions, energy=0.5)  # fitting takes minutes for 4,096
        index = EigenLISVIndex(str(tmp_path), token_projection=projection, show_progress=False)
        index.add_documents(range(60), documents)
        assert index.settings.standardise
        reopened = EigenLISVIndex(str(tmp_path))
        assert [[hits[0]["id"]] for hits in reopened(documents[:5])] == [[i] for i in range(5)]


class TestReopening:
    @pytest.mark.parametrize("backend", ["faiss", "voyager"])
    def test_options_of_searches_may_be_others_and_those_of_the_structure_not(
        self, make, documents, queries, backend
    ):
        pytest.importorskip(backend)
        built = {"faiss": {"factory": "HNSW16"}, "voyager": {"M": 8}}[backend]
        first = make(backend=backend, backend_options=built).add_documents(range(300), documents)
        first.build().close()
        index = make(backend_options={"ef_search": 7})
        assert index.settings.backend_options == {**built, "ef_search": 7}
        assert overlap(index(queries, k=5), make()(queries, k=5)) > 0.5
        index.add_documents(["more"], documents[:1])
        assert make().settings.backend_options == built
        name = next(iter(built))
        with pytest.raises(ValueError, match=f"made with {name} in backend_options"):
            make(backend_options={name: None})

    def test_idf_and_background_may_be_others(self, make, documents, queries):
        plain = make().add_documents(range(300), documents)
        index = make(idf=0.3, background=0.5)
        assert index(queries) == plain(queries, idf=0.3, background=0.5)
        with pytest.raises(ValueError, match="made with k=6, not 7"):
            make(idf=0.3, k=7)


class TestBadInput:
    @pytest.mark.parametrize(
        "options",
        [
            {"dtype": "int3"},
            {"backend": "annoy"},
            {"keep_tokens": "bfloat16"},
            {"k": 0},
            {"projection": 8},
            {"token_projection": "8"},
            {"backend_options": {"depth": 1}},
        ],
    )
    def test_unknown_choices_are_named(self, tmp_path, options):
        name = "depth" if "backend_options" in options else next(iter(options))
        with pytest.raises((TypeError, ValueError), match=name):
            EigenLISVIndex(str(tmp_path), **options)
        assert not list(tmp_path.iterdir())

    def test_an_index_of_the_other_kind_is_refused(self, tmp_path, documents):
        EigenLIIndex(str(tmp_path), "x", k=K, show_progress=False).add_documents([1], documents[:1])
        with pytest.raises(RuntimeError, match="kind 'eigenli'"):
            EigenLISVIndex(str(tmp_path), "x")

    def test_unknown_ids_and_rows_that_are_not_kept(self, make, documents):
        index = make(keep_tokens="float16").add_documents(["a"], documents[:1])
        with pytest.raises(UnknownDocumentError, match="'b'"):
            index.get_documents_embeddings([["b"]])
        rows = index.get_documents_embeddings([["a"]])[0][0]
        np.testing.assert_allclose(rows, documents[0].numpy(), atol=1e-3)
        with pytest.raises(ValueError, match=r"keeps tokens, not bases: compress\("):
            index.bases(["a"])
        bare = make(index_name="bare").add_documents(["a"], documents[:1])
        with pytest.raises(
            ValueError, match=r"keeps vectors, not tokens; .*keep_tokens=\"float16\""
        ):
            bare.get_documents_embeddings([["a"]])
        with pytest.raises(ValueError, match=r"keeps vectors, not bases; .*keep_bases=True"):
            bare.bases(["a"])
        based = make(index_name="based", keep_bases=True).add_documents(["a"], documents[:1])
        assert based.bases(["a"])[0].shape == (K, D)


class TestOverride:
    @pytest.mark.parametrize(
        "bad",
        [
            {"rerank": "bogus"},
            {"n_candidates": 0},
            {"rerank": "maxsim"},
            {"backend": "faiss", "backend_options": {"nonsense": 1}},
            {"backend": "faiss", "backend_options": {"nprobe": 0}},
            {"backend": "nonsense"},
            {"uri": "http://localhost:1"},
            {"token": "secret"},
            {"device": "nonsense"},
            {"k": D + 1},
            {"backend": "qdrant", "uri": "http://localhost:1", "backend_options": {"timeout": 1}},
        ],
        ids=str,
    )
    def test_that_cannot_be_made_leaves_the_old_documents(self, make, documents, queries, bad):
        for library in ("faiss", "qdrant_client"):
            pytest.importorskip(library)
        expected = make().add_documents(range(300), documents)(queries)
        with pytest.raises(Exception):  # noqa: B017, PT011  (each library has errors of its own)
            make(override=True, **bad).add_documents(range(9), documents[:9])
        assert make()(queries) == expected

    def test_replaces_all_with_the_first_change(self, make, documents, queries):
        make().add_documents(range(300), documents)
        index = make(override=True)
        assert len(index) == 0
        assert index(queries) == [[]] * len(queries)
        assert len(make()) == 300
        index.add_documents(["new"], documents[:1])
        assert len(index) == len(make()) == 1


class TestAStructureThatCannotBeBuilt:
    def test_is_told_after_the_commit_and_scanned_instead(
        self, make, documents, queries, exact, monkeypatch
    ):
        pytest.importorskip("faiss")
        monkeypatch.setattr(accelerator, "_PENDING_DOCUMENTS", 100)
        index = make(backend="faiss", backend_options={"factory": "IVF4096,Flat"})
        with pytest.warns(RuntimeWarning, match=r"building faiss failed \(faiss cannot train"):
            index.add_documents(range(300), documents)
        assert len(make()) == 300
        assert ids(make()(queries)) == ids(exact)
        with pytest.warns(RuntimeWarning, match="until build"):
            index.add_documents([0], documents[:1])
        assert len(index.remove_documents([0])) == 299
        with pytest.raises(ValueError, match="faiss cannot train"):
            index.build()

    def test_is_built_later(self, make, documents, queries, exact, monkeypatch):
        pytest.importorskip("voyager")
        monkeypatch.setattr(accelerator, "_PENDING_DOCUMENTS", 100)
        index = make(backend="voyager")
        with monkeypatch.context() as patch:
            patch.setattr(accelerator.Accelerator, "build", full_disk)
            with pytest.warns(RuntimeWarning, match="No space left"):
                index.add_documents(range(300), documents)
        assert index.build().meta["covered"] == 300
        assert overlap(index(queries), exact) > 0.9


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_folder_of_another_backend_says_so(tmp_path):
    EigenLISVIndex(str(tmp_path), k=2).add_documents(["a"], torch.eye(8)[None])
    with pytest.raises(ValueError, match=r"backend='exact', not 'qdrant'.*eigenli convert"):
        EigenLISVIndex(str(tmp_path), k=2, backend="qdrant")
