from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.definition import ranking, unit_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli.indexes import columns
from pylate_eigenli.indexes import exact_search as search_module
from pylate_eigenli.indexes.documents import SearchRequest
from pylate_eigenli.indexes.exact_search import ExactSearch, Panel
from pylate_eigenli.spectral.background import Queries
from pylate_eigenli.spectral.subspace import Subspaces, compress
from pylate_eigenli.storage import Store
from pylate_eigenli.tokens import collect
from pylate_eigenli.vectors.row_scores import subspace_scores
from pylate_eigenli.vectors.rows import ROW_DTYPES

D = 12
LIMITS = {"no panel": 0, "some panels": 150 * Panel.nbytes_per_document(D), "all panels": 1 << 30}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def append(store, first, documents, k=5, dtype="float32"):
    write(store, range(first, first + len(documents)), compress(documents, k), dtype)


def write(store, ids, subspaces, dtype):
    made = columns.of_subspaces(ids, subspaces, dtype)
    with store.transaction() as transaction:
        transaction.append(
            ids, documents=made.documents, rows=made.rows, lengths=np.diff(made.offsets)
        )


def exact_scores(segment, documents, query):
    bases, floors = columns.bases(segment), columns.floors(segment)
    return subspace_scores(bases, segment.offsets, floors, documents, query)


@pytest.fixture
def store(tmp_path, rng):
    """300 documents in several segments, every seventh removed, many of them alike."""
    store = Store(tmp_path / "index", segment_bytes=20_000)
    distinct = [unit_rows(rng, int(m), D) for m in rng.integers(1, 30, 60)]
    append(store, 0, [distinct[i] for i in rng.integers(0, 60, 300)])
    with store.transaction() as transaction:
        transaction.remove(range(0, 300, 7))
    assert len(store.snapshot.segments) > 3
    return store


def definition(snapshot, query):
    """Scores of all global rows from the stored bases, in float64; -inf for the dead."""
    scores = np.full(int(snapshot.starts[-1]), -np.inf)
    mass = (query.astype(np.float64) ** 2).sum()
    for start, segment in zip(snapshot.starts, snapshot.segments, strict=False):
        living = np.flatnonzero(segment.alive)
        for row, basis in zip(living, columns.kept(segment, living), strict=True):
            inside = ((query.astype(np.float64) @ basis.T) ** 2).sum()
            floor = float(columns.floors(segment)[row])
            scores[start + row] = (1 - floor) * inside + floor * mass
    return scores


def plain(queries, k):
    """Queries with nothing done to them."""
    tokens = collect(queries)
    return SearchRequest(Queries(tokens, tokens), k)


def run(snapshot, queries, k, allowed=None, memory_limit=1 << 30):
    return list(ExactSearch(memory_limit).search(snapshot, plain(queries, k), allowed))


def assert_same(results, others):
    for result, other in zip(results, others, strict=True):
        assert result.rows.tolist() == other.rows.tolist()
        assert result.scores.tolist() == other.scores.tolist()


class TestResults:
    @pytest.mark.parametrize("limit", LIMITS)
    @pytest.mark.parametrize("tokens", [1, 4, 40])
    def test_are_those_of_the_definition(self, store, rng, limit, tokens):
        queries = [unit_rows(rng, tokens, D) for _ in range(6)]
        for k in (1, 10, 299, 1000):
            results = run(store.snapshot, queries, k, memory_limit=LIMITS[limit])
            for query, (rows, scores) in zip(queries, results, strict=True):
                expected = definition(store.snapshot, query)
                # Documents that are alike have equal scores; others are further apart than that.
                order = ranking(expected.round(5), min(k, len(store.snapshot)))
                np.testing.assert_allclose(scores, expected[order], atol=1e-5 * tokens)
                assert rows.tolist() == order

    def test_do_not_depend_on_the_memory_for_panels(self, store, rng):
        queries = [unit_rows(rng, 4, D) for _ in range(9)]
        expected = run(store.snapshot, queries, 20)
        for limit in LIMITS.values():
            assert_same(run(store.snapshot, queries, 20, memory_limit=limit), expected)

    def test_do_not_depend_on_the_queries_beside_them(self, store, rng):
        queries = [unit_rows(rng, int(n), D) for n in rng.integers(1, 30, 12)]
        for limit in LIMITS.values():
            together = run(store.snapshot, queries, 20, memory_limit=limit)
            alone = [run(store.snapshot, [q], 20, memory_limit=limit)[0] for q in queries]
            assert_same(together, alone)

    @pytest.mark.parametrize("limit", LIMITS)
    @pytest.mark.parametrize("constant", ["_BLOCK_BYTES", "_SCORES_BYTES", "_FEW_CANDIDATES"])
    def test_do_not_depend_on_the_size_of_blocks(self, store, rng, monkeypatch, constant, limit):
        queries = [unit_rows(rng, int(n), D) for n in rng.integers(1, 30, 12)]
        candidates = store.snapshot.locate(range(1, 300, 3))
        choices = (None, [np.unique(candidates[candidates >= 0])] * 12)

        def found():
            memory = LIMITS[limit]
            return [run(store.snapshot, queries, 20, a, memory_limit=memory) for a in choices]

        expected = found()
        monkeypatch.setattr(search_module, constant, 1)
        for got, before in zip(found(), expected, strict=True):
            assert_same(got, before)

    def test_equal_documents_come_in_the_order_of_their_rows(self, tmp_path, rng):
        store = Store(tmp_path / "index", segment_bytes=2_000)
        document, other = unit_rows(rng, 9, D), unit_rows(rng, 9, D)
        append(store, 0, [document, other] * 40)
        (result,) = run(store.snapshot, [document[:3]], 60)
        assert len(store.snapshot.segments) > 1
        assert len(set(result.scores[:40].tolist())) == 1
        assert result.rows.tolist() == [*range(0, 80, 2), *range(1, 40, 2)]

    def test_the_dead_are_never_found(self, store, rng):
        (result,) = run(store.snapshot, [unit_rows(rng, 3, D)], 10_000)
        ids = store.snapshot.ids_of(result.rows)
        assert sorted(ids) == [i for i in range(300) if i % 7]

    def test_queries_need_not_have_unit_tokens(self, store, rng):
        query = unit_rows(rng, 3, D)
        (expected,) = run(store.snapshot, [query], 20)
        for scale in (1e-4, 1e4):
            (result,) = run(store.snapshot, [scale * query], 20)
            assert result.rows.tolist() == expected.rows.tolist()
            np.testing.assert_allclose(result.scores, scale**2 * expected.scores, rtol=1e-5)


class TestStructuredEmbeddings:
    """Vectors whose rounding errors add up must not hide a document from the search."""

    @pytest.mark.parametrize("structure", ["one-hot", "a spike", "signs"])
    def test_regular_documents_among_random_ones(self, tmp_path, rng, structure):
        d, n = 128, 500
        spike = np.concatenate([np.full((n, 1), 20.0), np.ones((n, d - 1))], axis=1)
        regular = {
            "one-hot": np.eye(d)[rng.integers(0, d, n)],
            "a spike": spike / np.linalg.norm(spike[0]),
            "signs": np.sign(rng.standard_normal((n, d))) / np.sqrt(d),
        }[structure]
        tokens = np.concatenate([regular, unit_rows(rng, n, d)]).astype(np.float32)
        store = Store(tmp_path / "index")
        append(store, 0, list(tokens[:, None]), k=1)
        queries = np.abs(unit_rows(rng, 50, d))
        queries[:, 0] = 0
        expected = ((queries.astype(np.float64) @ tokens.T) ** 2).astype(np.float32)
        results = run(store.snapshot, queries[:, None], 5)
        for scores, result in zip(expected, results, strict=True):
            np.testing.assert_allclose(result.scores, scores[ranking(scores, 5)], atol=1e-6)


class TestCandidates:
    def test_only_those_allowed_are_found(self, store, rng):
        queries = [unit_rows(rng, 3, D) for _ in range(4)]
        living = store.snapshot.locate([i for i in range(300) if i % 7])
        rows = np.sort(living)
        allowed = [rows, np.zeros(0, np.int64), rows[5:6], rows[::3]]
        results = run(store.snapshot, queries, 1000, allowed)
        assert [len(result.rows) for result in results] == [257, 0, 1, 86]
        for query, rows, result in zip(queries, allowed, results, strict=True):
            expected = definition(store.snapshot, query)[rows].round(5)
            assert result.rows.tolist() == rows[ranking(expected, 1000)].tolist()

    def test_an_empty_snapshot_has_no_hits(self, tmp_path, rng):
        (result,) = run(Store(tmp_path / "nothing").snapshot, [unit_rows(rng, 3, D)], 5)
        assert result.rows.tolist() == result.scores.tolist() == []


class TestPanels:
    def test_memory_stays_within_the_limit(self, store, rng):
        for limit in LIMITS.values():
            search = ExactSearch(limit)
            list(search.search(store.snapshot, plain([unit_rows(rng, 3, D)], 5)))
            assert sum(panel.nbytes for panel in search._panels.values()) <= limit

    def test_panels_of_segments_that_are_gone_are_freed(self, store, rng):
        search = ExactSearch(1 << 30)
        queries = plain([unit_rows(rng, 3, D)], 5)
        list(search.search(store.snapshot, queries))
        assert len(search._panels) == len(store.snapshot.segments)
        with store.transaction() as transaction:
            transaction.remove([i for i in range(280) if i % 7])
        list(search.search(store.snapshot, queries))
        assert len(search._panels) == len(store.snapshot.segments)
        search.clear()
        assert len(search._panels) == 0


class TestExactScores:
    @pytest.mark.parametrize("dtype", ROW_DTYPES)
    @settings(max_examples=20, deadline=None)
    @given(d=st.integers(1, 40), n_tokens=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))
    def test_are_the_definition_of_what_is_stored(self, tmp_path_factory, dtype, d, n_tokens, seed):
        rng = np.random.default_rng(seed)
        store = Store(tmp_path_factory.mktemp("index"))
        documents = [unit_rows(rng, int(m), d) for m in rng.integers(1, 30, 10)]
        append(store, 0, documents, k=max(1, d // 2), dtype=dtype)
        query = unit_rows(rng, n_tokens, d)
        (segment,) = store.snapshot.segments
        got = exact_scores(segment, np.arange(10), torch.from_numpy(query))
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, definition(store.snapshot, query), atol=2e-6 * n_tokens)

    @pytest.mark.parametrize("dtype", ROW_DTYPES)
    def test_equal_documents_are_equal_to_the_last_bit(self, tmp_path, rng, dtype):
        store = Store(tmp_path)
        documents = [unit_rows(rng, 9, 31)] * 200
        append(store, 0, documents, k=7, dtype=dtype)
        (segment,) = store.snapshot.segments
        scores = exact_scores(
            segment, rng.permutation(200), torch.from_numpy(unit_rows(rng, 5, 31))
        )
        assert len(set(scores.tolist())) == 1

    @pytest.fixture(params=[False, True], ids=["", "flushed"])
    def _flushed(self, request):
        """Some libraries, once loaded, have the processor flush the smallest floats to zero."""
        torch.set_flush_denormal(request.param)
        yield
        torch.set_flush_denormal(False)

    @pytest.mark.usefixtures("_flushed")
    def test_numbers_too_small_for_a_normal_half_are_read(self, tmp_path):
        """The largest entry of a unit vector is never small, but the others may be."""
        store = Store(tmp_path)
        row = np.array([[1.0, 3e-5, -6e-8, 0.0]], np.float32)
        one = Subspaces(
            torch.from_numpy(row), np.array([0, 1]), torch.ones(1), torch.ones(1), torch.zeros(1)
        )
        write(store, [0], one, "float16")
        (segment,) = store.snapshot.segments
        for axis, expected in enumerate(row[0].astype(np.float16).astype(np.float64)):
            scores = exact_scores(segment, np.zeros(1, np.int64), torch.eye(4)[[axis]])
            assert scores[0] == pytest.approx(expected**2, rel=1e-6)
