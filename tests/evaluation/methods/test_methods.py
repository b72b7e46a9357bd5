"""Every method finds what its own definition says, in one go or in parts."""

from __future__ import annotations

import re
import sys
from itertools import pairwise

import numpy as np
import pytest

from pylate_eigenli import EigenLIIndex, EigenLISVIndex, SVProjection, TokenProjection
from pylate_eigenli.evaluation.baselines import Muvera, pool_kmeans, pool_ward
from pylate_eigenli.evaluation.methods import FAMILIES, Method, expand, parse
from pylate_eigenli.scores.maxsim import maxsim_scores
from pylate_eigenli.tokens import TokenBatch, collect
from pylate_eigenli.vectors.ranking import top_k

PAPER = {"k": 8, "preset": "paper"}
INDEXES = {
    "eigenli-8": (EigenLIIndex, PAPER),
    "eigenli-8:preset=plus,fit_queries=true": (EigenLIIndex, {"k": 8, "preset": "plus"}),
    "eigenli-8:filter=soft(0.01),idf=0.25,centering=both": (
        EigenLIIndex,
        {"k": 8, "filter": "soft(0.01)", "idf": 0.25, "centering": "both"},
    ),
    "eigenli-sv-8": (EigenLISVIndex, PAPER),
    "eigenli-sv-8:preset=plus,dtype=binary": (
        EigenLISVIndex,
        {"k": 8, "preset": "plus", "dtype": "binary"},
    ),
    "eigenli-sv-8:dtype=binary,rerank=maxsim": (
        EigenLISVIndex,
        {**PAPER, "dtype": "binary", "keep_tokens": "int8", "rerank": "maxsim"},
    ),
    "eigenli-sv-8:dtype=int4,rerank=eigenli": (
        EigenLISVIndex,
        {**PAPER, "dtype": "int4", "keep_bases": True, "rerank": "eigenli"},
    ),
}
SCANNED = ["full", "kmeans-8", "ward-8", "muvera", "muvera-centered"]
SMALL = "features=32,sample_tokens=400,learning_tokens=400,epochs=1,show_progress=false"
SINGLE = [
    "muvera:dtype=int8",
    "muvera:dtype=binary,rerank=maxsim,n_candidates=70",
    f"lemur:{SMALL}",
    f"lemur-elm:dtype=int4,dim=20,{SMALL}",
]
STREAMED = [*SCANNED, *SINGLE, *INDEXES, "eigenli-sv-8:preset=plus,token_dim=12,dim=20"]


@pytest.fixture(scope="module")
def items():
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((int(m), 32)) for m in rng.integers(1, 60, 50)]
    # Equal documents, so that ties have to be broken. As float16, which is what is stored.
    rows = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in rows + rows[:20]]
    return [np.float16(x) for x in rows]


@pytest.fixture(scope="module")
def queries(items):
    return collect([item[:9] for item in items[7:12]], names="query")


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(1)
    rows = [rng.standard_normal((12, 32)) for _ in range(300)]
    return [np.float16(x / np.linalg.norm(x, axis=1, keepdims=True)) for x in rows]


def built(name, items, folder, bounds=(0, 1, 33, 70)):
    method = parse(name).open(folder)
    for begin, end in pairwise(bounds):
        method.add(collect(items[begin:end]))
    method.finish()
    return method


def halved(batch):
    return TokenBatch(batch.tokens.half().float(), batch.offsets)


class TestEveryMethod:
    @pytest.mark.parametrize("name", STREAMED)
    def test_keeps_the_interface(self, name, items, queries, tmp_path):
        method = built(name, items, tmp_path)
        assert isinstance(method, Method)
        assert len(method) == 70
        assert method.nbytes > 0
        for hits in method.search(queries, k=9):
            assert len(set(hits.rows.tolist())) == len(hits.scores) == 9
            assert hits.scores.dtype == np.float32
            assert (np.diff(hits.scores) <= 0).all()
        method.close()

    @pytest.mark.parametrize("name", STREAMED)
    def test_candidates_get_the_scores_of_a_search(self, name, items, queries, tmp_path):
        method = built(name, items, tmp_path)
        asked = collect(list(queries)[:3], names="query")
        everything = [dict(zip(*hits, strict=True)) for hits in method.search(asked, k=70)]
        candidates = [np.array([69, 3, 40]), np.array([], np.int64), np.array([0])]
        found = method.search(asked, 2, candidates)
        assert [len(hits.rows) for hits in found] == [2, 0, 1]
        for hits, scores, rows in zip(found, everything, candidates, strict=True):
            assert set(hits.rows.tolist()) <= set(rows.tolist())
            expected = sorted((scores[r] for r in rows), reverse=True)[:2]
            np.testing.assert_allclose(hits.scores, expected, rtol=1e-5)

    @pytest.mark.parametrize("name", STREAMED)
    def test_a_folder_is_opened_with_its_documents_and_continued(
        self, name, items, queries, tmp_path
    ):
        # The codes of single vectors depend on the first batch.
        expected = built(name, items, tmp_path / "whole").search(queries, k=5)
        built(name, items, tmp_path / "parts", (0, 1, 33)).close()
        method = parse(name).open(tmp_path / "parts")
        assert len(method) == 33
        method.add(collect(items[33:]))
        method.finish()
        for hits, before in zip(method.search(queries, k=5), expected, strict=True):
            np.testing.assert_array_equal(hits.rows, before.rows)
            np.testing.assert_array_equal(hits.scores, before.scores)


class TestScanned:
    @pytest.mark.parametrize("name", SCANNED)
    def test_scores_are_those_of_the_definition(self, name, items, queries, tmp_path):
        documents = collect(items)
        centered = Muvera(centered=True)
        scores = {
            "full": lambda: maxsim_scores(queries, documents),
            "ward-8": lambda: maxsim_scores(queries, halved(pool_ward(documents, 8))),
            "kmeans-8": lambda: maxsim_scores(queries, halved(pool_kmeans(documents, 8))),
            "muvera": lambda: Muvera().encode_queries(queries)
            @ np.float16(Muvera().encode_documents(documents)).T.astype(np.float32),
            "muvera-centered": lambda: centered.encode_queries(queries)
            @ np.float16(centered.encode_documents(documents)).T.astype(np.float32),
        }[name]()
        for hits, row in zip(
            built(name, items, tmp_path).search(queries, k=9), scores, strict=True
        ):
            best = top_k(row, 9)
            np.testing.assert_allclose(hits.scores, row[best], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(row[hits.rows], hits.scores, rtol=1e-4, atol=1e-5)

    def test_full_ranks_like_pylate(self, items, queries, tmp_path, pylate):
        # Documents of many tokens, so that no query token is farther than a right angle from all
        # of them: PyLate pads with zeros, which would then be the nearest.
        long = [np.float32(item) for item in items[:50] if len(item) > 20]
        ids = list(range(len(long)))
        found = built("full", long, tmp_path, (0, 10, len(long))).search(queries, k=10)
        for query, hits in zip(queries, found, strict=True):
            (expected,) = pylate.rank.rerank([ids], [query.numpy()], [long])
            assert hits.rows.tolist() == [hit["id"] for hit in expected[:10]]
            np.testing.assert_allclose(
                hits.scores, [hit["score"] for hit in expected[:10]], rtol=1e-5
            )

    def test_numkong_scores_tokens_of_half_precision(self, items, queries, tmp_path):
        scores = maxsim_scores(halved(queries), halved(collect(items)))
        found = built("numkong", items, tmp_path).search(queries, k=9)
        for hits, row in zip(found, scores, strict=True):
            np.testing.assert_allclose(hits.scores, row[top_k(row, 9)], rtol=1e-4)
            np.testing.assert_allclose(row[hits.rows], hits.scores, rtol=1e-4)

    def test_sizes_are_those_of_the_vectors_in_half_precision(self, items, tmp_path):
        vectors = {
            "full": sum(map(len, items)),
            "ward-8": sum(min(len(item), 8) for item in items),
            "kmeans-8": sum(min(len(item), 8) for item in items),
        }
        for name, expected in vectors.items():
            size = built(name, items, tmp_path / name).nbytes
            # Plus offsets and the headers of three files.
            assert 2 * 32 * expected < size < 2 * 32 * expected + 4000


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_is_measured_itself(name, items, queries, tmp_path):
    index_type, options = INDEXES[name]
    index = index_type(str(tmp_path / "index"), show_progress=False, **options)
    method = parse(name).open(tmp_path / "method")
    ids = [str(i) for i in range(70)]
    index.add_documents(ids, [np.float32(item) for item in items])
    method.add(collect(items))
    method.finish()
    method.fit_queries(queries)
    if "fit_queries" in name:
        index.fit_queries(list(queries))
    for hits, expected in zip(
        method.search(queries, k=70), index(list(queries), k=70), strict=True
    ):
        assert [str(row) for row in hits.rows] == [hit["id"] for hit in expected]
        np.testing.assert_array_equal(hits.scores, [hit["score"] for hit in expected])
    assert method.nbytes == pytest.approx(index.nbytes, rel=0.05)


class TestSingleVectors:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ("dtype=float32", 4 * 640),
            ("dtype=float16", 2 * 640),
            ("dtype=int8", 648),
            ("dtype=int4", 328),
            ("dtype=binary", 88),
            ("dtype=int8,dim=40", 48),
            ("dtype=int8,dim=71", 648),  # there are fewer documents
        ],
    )
    def test_their_sizes_are_those_of_dtype_and_dim(self, options, expected, items, tmp_path):
        name = f"muvera:{options},repetitions=5,hyperplanes=3"
        assert built(name, items, tmp_path).nbytes == 70 * expected

    def test_codes_of_more_bits_are_nearer_to_the_vectors(self, items, queries, tmp_path):
        candidates = [np.arange(70)] * 5
        errors = []
        exact = built("muvera", items, tmp_path / "exact").search(queries, 70, candidates)
        for dtype in ("int8", "int4", "binary"):
            method = built(f"muvera:dtype={dtype}", items, tmp_path / dtype)
            pairs = zip(method.search(queries, 70, candidates), exact, strict=True)
            by_row = [(a.scores[a.rows.argsort()], b.scores[b.rows.argsort()]) for a, b in pairs]
            errors.append(np.mean([np.abs(a - b).mean() for a, b in by_row]))
        assert errors == sorted(errors)
        assert errors[0] < 1e-2 * errors[2]

    @pytest.mark.parametrize("name", ["muvera", f"lemur-elm:{SMALL}"])
    def test_candidates_that_are_reranked_get_the_scores_of_maxsim(
        self, name, items, queries, tmp_path
    ):
        options = "rerank=maxsim,n_candidates=20"
        name = f"{name},{options}" if ":" in name else f"{name}:{options}"
        first = built(name.replace(f"{options}", "dtype=float16"), items, tmp_path / "first")
        method = built(name, items, tmp_path / "both")
        exact = maxsim_scores(queries, collect(items))
        for scores, hits, best in zip(
            exact, method.search(queries, 60), first.search(queries, 20), strict=True
        ):
            assert sorted(hits.rows) == sorted(best.rows)
            np.testing.assert_allclose(hits.scores, scores[hits.rows], rtol=1e-2)
        tokens = sum(map(len, items))
        assert method.nbytes - first.nbytes == (32 + 4) * tokens + 8 * 71

    def test_lemur_learns_from_queries_only_if_asked(self, items, queries, tmp_path):
        found = []
        for options in ("", ",fit_queries=true"):
            method = built(f"lemur-elm:{SMALL}{options}", items, tmp_path / options)
            method.fit_queries(queries)
            found.append(method.search(queries, 70)[0].scores)
        plain = built(f"lemur-elm:{SMALL}", items, tmp_path / "plain").search(queries, 70)[0]
        np.testing.assert_array_equal(found[0], plain.scores)
        assert not np.allclose(found[1], plain.scores)


def test_projections_are_fitted_to_all_documents(items, queries, tmp_path):
    name = "eigenli-sv-4:preset=plus,token_dim=12,dim=20"
    method = built(name, items, tmp_path / "method", (0, 40, 70))
    floats = [np.float32(item) for item in items]
    options = {"k": 4, "preset": "plus", "show_progress": False}
    options["token_projection"] = TokenProjection.fit(floats, 12)

    def filled(folder, **more):
        index = EigenLISVIndex(str(tmp_path / folder), **options, **more)
        index.add_documents([str(i) for i in range(40)], floats[:40])
        return index.add_documents([str(i) for i in range(40, 70)], floats[40:])

    assert method.nbytes / 70 < 1000  # a projection to 20 dimensions has 91 x 20 floats
    vectors = (batch for _, batch in filled("plain", dtype="float16").vectors())
    index = filled("index", projection=SVProjection.fit(vectors, 20))
    for hits, expected in zip(method.search(queries, 9), index(list(queries), k=9), strict=True):
        np.testing.assert_allclose(hits.scores, [hit["score"] for hit in expected], rtol=1e-5)


class TestLimits:
    def test_no_more_candidates_are_looked_at_than_the_index_would(self, items, queries, tmp_path):
        method = built("eigenli-sv-8:rerank=maxsim,n_candidates=20", items, tmp_path)
        assert [len(hits.rows) for hits in method.search(queries, k=60)] == [20] * 5

    @pytest.mark.parametrize("backend", ["voyager", "faiss"])
    def test_an_ann_structure_is_built(self, backend, items, queries, tmp_path):
        pytest.importorskip(backend)
        method = built(f"eigenli-sv-8:backend={backend}", items, tmp_path)
        exact = built("eigenli-sv-8", items, tmp_path / "exact").search(queries, k=5)
        for hits, expected in zip(method.search(queries, k=5), exact, strict=True):
            np.testing.assert_allclose(hits.scores, expected.scores, rtol=1e-3)
        assert method.nbytes > 1.5 * 70 * 32 * 33 / 2


class TestLearned:
    """Methods that learn from the whole collection."""

    @pytest.mark.parametrize(
        ("name", "library"),
        [("faiss-pq:bits=2,k=8", "faiss"), ("plaid", "fast_plaid"), ("voyager", "voyager")],
    )
    def test_a_document_is_found_by_its_tokens(self, name, library, many, tmp_path):
        pytest.importorskip(library)
        method = built(name, many, tmp_path, (0, 200, 300))
        queries = collect([many[i][:8] for i in (3, 250)], names="query")
        found = method.search(queries, k=10)
        assert [3 in hits.rows[:3] for hits in found] == [True, False]
        assert [250 in hits.rows[:3] for hits in found] == [False, True]
        assert method.nbytes > 0
        method.close()

    def test_the_product_quantizer_takes_its_bits(self, many, tmp_path):
        pytest.importorskip("faiss")
        codebooks = 256 * 528 * 4
        for bits in (1, 4):
            method = built(f"faiss-pq:bits={bits},k=8", many, tmp_path / str(bits), (0, 300))
            assert method.nbytes == pytest.approx(codebooks + 300 * 66 * bits, rel=0.1)

    @pytest.mark.parametrize("name", ["faiss-pq", "voyager"])
    def test_candidates_are_refused_where_they_cannot_be_scored(self, name, many, tmp_path):
        pytest.importorskip("faiss" if "faiss" in name else "voyager")
        method = built(name, many, tmp_path, (0, 300))
        with pytest.raises(ValueError, match=f"{name} searches all documents"):
            method.search(collect([many[0]]), 5, [np.array([1])])

    @pytest.mark.parametrize("name", ["warp", "tachiom", "voyager"])
    def test_a_missing_library_is_named_before_anything_is_built(self, name, monkeypatch):
        library = "xtr_warp" if name == "warp" else name
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(ImportError, match=rf'pip install "pylate-eigenli\[{name}\]"'):
            parse(name).check()

    def test_plaid_scores_candidates(self, many, tmp_path):
        method = built("plaid", many, tmp_path, (0, 300))
        (hits,) = method.search(collect([many[7]]), 5, [np.array([7, 9])])
        assert hits.rows[0] == 7
        assert set(hits.rows.tolist()) <= {7, 9}


class TestNames:
    def test_tell_the_budget_and_the_options(self):
        spec = parse("eigenli-8:filter=soft(0.01),idf=0.25,centering=both")
        assert (spec.family.name, spec.k) == ("eigenli", 8)
        assert spec.options == {"filter": "soft(0.01)", "idf": 0.25, "centering": "both"}
        assert parse("eigenli-sv-8:keep_bases=true").options == {"keep_bases": True}

    @pytest.mark.parametrize(
        "name",
        [
            "eigenli-8:taus=1",
            "eigenli-8:idf",
            "eigenli-8:idf=x",
            "eigenli-sv-8:idf=x",
            "eigenli-sv-8:ef_search=9",
            "ward-8:idf=0.2",
            "muvera:planes=3",
            "muvera:fit_queries=true",
            "muvera:dtype=int3",
            "lemur:features=0",
            "lemur:rerank=eigenli",
            "lemur-elm:n_candidates=0",
            "lemur-elm:dim=0",
            "eigenli-8:dtype=int3",
            "eigenli-sv-8:rerank=bm25",
            "eigenli-sv-8:token_dim=0",
            "eigenli-sv-8:dim=1.5",
        ],
    )
    def test_bad_options_are_named_with_their_method_before_anything_is_built(self, name):
        with pytest.raises(ValueError, match=f"^{re.escape(name)}: "):
            expand([name], [])

    def test_options_that_an_index_does_not_have_are_its_backends(self, tmp_path):
        pytest.importorskip("voyager")
        method = parse("eigenli-sv-8:backend=voyager,M=8,ef_search=50").open(tmp_path)
        assert method.index.settings.backend_options == {"M": 8, "ef_search": 50}

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "fully",
            "ward",
            "ward-",
            "ward--8",
            "ward-x",
            "ward-0",
            "ward-08",
            "full-8",
            "muvera-8",
            "plaid-8",
        ],
    )
    def test_unknown_ones_are_refused_with_those_there_are(self, name):
        with pytest.raises(ValueError, match=r"unknown method .* ward-<k>"):
            parse(name)

    def test_families_are_expanded(self):
        assert expand(["ward", "plaid", "ward-4"], [4, 8]) == ["ward-4", "ward-8", "plaid"]
        assert all(family.name == name for name, family in FAMILIES.items())
