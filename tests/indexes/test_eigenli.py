from __future__ import annotations

import copy
from inspect import signature

import numpy as np
import pytest
import torch
from helpers.definition import projector, ranking, score, unit_rows
from helpers.hits import ids

from pylate_eigenli import (
    EigenLIIndex,
    EigenLISVIndex,
    IndexFormatError,
    IndexLockedError,
    UnknownDocumentError,
    rerank,
)
from pylate_eigenli.indexes.exact_search import Panel
from pylate_eigenli.scores.interface import RerankResult
from pylate_eigenli.storage import Store
from pylate_eigenli.storage.disk import RESERVE_NAME

D, K = 16, 5
# How far a score of a query token may be off for the precision that bases are stored with.
PRECISION = {"float32": 1e-5, "float16": 1e-3, "int8": 3e-2}
LIMITS = [0, 20 * Panel.nbytes_per_document(D), 1 << 30]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def documents(rng):
    """Of one token and up to 40, so that some have fewer than K directions."""
    return [unit_rows(rng, int(m), D) for m in [1, 1, 2, 3, *rng.integers(1, 40, 46)]]


@pytest.fixture
def queries(rng):
    return [unit_rows(rng, int(n), D) for n in rng.integers(1, 9, 7)]


@pytest.fixture
def make(tmp_path):
    """Open the index of the test, or another one by name."""
    opened = []

    def open_index(name="index", **options):
        # An option that is given, like this default, keeps the score the paper's.
        options = {"show_progress": False, "short_documents": "fill", **options}
        opened.append(EigenLIIndex(str(tmp_path), name, **options))
        return opened[-1]

    yield open_index
    for index in opened:
        index.close()


def files(index):
    """Every byte of an index on disk, but for the lock and the reserve."""
    folder = Store(f"{index.index_folder}/{index.index_name}").path
    others = ("writer.lock", RESERVE_NAME)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in others}


def assert_are_the_best(result, scores, k, tolerance):
    """The hits have the scores of their documents, and no document left out has a higher one."""
    assert len(result) == min(k, len(scores))
    assert len({hit["id"] for hit in result}) == len(result)
    for hit in result:
        assert hit["score"] == pytest.approx(scores[hit["id"]], abs=tolerance)
    got = [hit["score"] for hit in result]
    assert got == sorted(got, reverse=True)
    left_out = scores.keys() - {hit["id"] for hit in result}
    assert all(scores[i] <= got[-1] + tolerance for i in left_out)


class TestResults:
    @pytest.mark.parametrize("memory_limit", LIMITS)
    @pytest.mark.parametrize("dtype", PRECISION)
    @pytest.mark.parametrize("short_documents", ["fill", "truncate"])
    def test_are_those_of_the_definition(
        self, make, documents, queries, short_documents, dtype, memory_limit
    ):
        index = make(k=K, dtype=dtype, short_documents=short_documents, memory_limit=memory_limit)
        index.add_documents(range(30), documents[:30])
        index.add_documents(range(30, 40), documents[30:40])
        index.add_documents(range(40, 42), documents[40:42])
        for k in (1, 10, 1000):
            for query, result in zip(queries, index(queries, k=k), strict=True):
                scores = {i: score(query, documents[i], K, short_documents) for i in range(42)}
                assert_are_the_best(result, scores, k, PRECISION[dtype] * len(query))

    def test_are_ids_and_scores(self, make, documents, queries):
        (result,) = make(k=K).add_documents(range(50), documents)(queries[:1])
        assert len(result) == 10
        for hit in result:
            assert list(hit) == list(RerankResult.__annotations__) == ["id", "score"]
            assert type(hit["id"]) is int
            assert type(hit["score"]) is float

    @pytest.mark.parametrize("memory_limit", LIMITS)
    def test_do_not_depend_on_the_queries_beside_them(self, make, documents, queries, memory_limit):
        index = make(k=K, memory_limit=memory_limit).add_documents(range(50), documents)
        assert index(queries) == [index([query])[0] for query in queries]
        assert index(queries[::-1]) == index(queries)[::-1]

    def test_do_not_depend_on_how_documents_were_added(self, make, documents, queries):
        at_once = make("at once", k=K).add_documents(range(50), documents)
        small = make("small", k=K).add_documents(range(50), documents, batch_size=3)
        single = make("single", k=K)
        for i, document in enumerate(documents):
            single.add_documents(i, document)
        assert at_once(queries) == small(queries) == single(queries)
        assert small.compact()(queries) == at_once(queries)

    def test_equal_scores_come_in_the_order_of_adding(self, make, rng):
        one, other = unit_rows(rng, 9, D), unit_rows(rng, 9, D)
        index = make(k=K)
        index.add_documents([f"a{i}" for i in range(40)], [one, other] * 20)
        index.add_documents([f"b{i}" for i in range(12)], [one, other] * 6)
        index.add_documents(["c0", "c1"], [one, other])
        assert len(Store(f"{index.index_folder}/index").snapshot.segments) == 3
        expected = [f"{x}{i}" for x, n in (("a", 40), ("b", 12), ("c", 2)) for i in range(0, n, 2)]
        assert ids(index([one[:2]], k=27)) == [expected]
        assert ids(index([one[:2]], k=5)) == [expected[:5]]
        index.add_documents("a4", one)
        assert ids(index([one[:2]], k=27)) == [[i for i in expected if i != "a4"] + ["a4"]]

    def test_a_matrix_is_one_query(self, make, documents, queries):
        index = make(k=K).add_documents(range(50), documents)
        query = queries[0]
        expected = index([query])
        assert len(expected) == 1
        for form in (query, torch.from_numpy(query), query.tolist(), query[None], [query.tolist()]):
            assert index(form) == expected

    def test_padding_of_queries_does_not_matter(self, make, documents, queries):
        index = make(k=K).add_documents(range(50), documents)
        padded = torch.nn.utils.rnn.pad_sequence(
            [torch.from_numpy(q) for q in queries], batch_first=True
        )
        assert index(padded) == index(queries)

    def test_documents_of_one_token(self, make, rng):
        tokens = unit_rows(rng, 20, D)
        index = make(k=K, dtype="float32").add_documents(range(20), tokens[:, None])
        for i, (first, *_) in enumerate(index(tokens[:, None], k=3)):
            assert first["id"] == i
            assert first["score"] == pytest.approx(1, abs=1e-5)

    def test_an_empty_index_finds_nothing(self, make, queries):
        index = make(k=K)
        assert index(queries) == [[]] * len(queries)
        assert len(index) == 0

    def test_an_index_that_was_emptied_finds_nothing(self, make, documents, queries):
        index = make(k=K).add_documents(range(50), documents)
        index.remove_documents(range(50))
        assert index(queries) == [[]] * len(queries)
        index.add_documents("back", documents[0])
        assert ids(index(queries[:1])) == [["back"]]

    @pytest.mark.parametrize("k", [0, -1, 2.5, None])
    def test_k_must_be_a_positive_integer(self, make, documents, queries, k):
        index = make(k=K).add_documents(range(50), documents)
        with pytest.raises(ValueError, match="k must be a positive integer"):
            index(queries, k=k)

    def test_bad_queries_are_named(self, make, documents, queries):
        index = make(k=K).add_documents(range(50), documents)
        queries[2][0, 3] = np.nan
        with pytest.raises(ValueError, match="query 2: token 0 contains NaN"):
            index(queries)
        with pytest.raises(ValueError, match="query 0 has dimension 3, expected 16"):
            index(np.ones((2, 3)))
        with pytest.raises(ValueError, match="no query was given"):
            index([])


class TestSubset:
    @pytest.fixture
    def index(self, make, documents):
        return make(k=K, memory_limit=0).add_documents(
            [i if i % 2 else f"d{i}" for i in range(50)], documents
        )

    @pytest.fixture
    def everything(self, index, queries):
        return index(queries, k=50)

    @staticmethod
    def filtered(results, subsets):
        return [
            [hit for hit in result if hit["id"] in subset]
            for result, subset in zip(results, subsets, strict=True)
        ]

    def test_one_list_for_all(self, index, queries, everything):
        subset = ["d4", 7, "d8", 9, 11]
        assert index(queries, k=50, subset=subset) == self.filtered(everything, [subset] * 7)
        assert index(queries, k=2, subset=subset) == [
            result[:2] for result in self.filtered(everything, [subset] * 7)
        ]

    def test_one_list_per_query(self, index, queries, everything):
        subsets = [["d4", 7], [9], [], ["d0"], ["unknown"], [1, 3, 5], ["d2", "unknown"]]
        assert index(queries, k=50, subset=subsets) == self.filtered(everything, subsets)

    def test_none_of_them(self, index, queries):
        nothing = [[]] * len(queries)
        assert index(queries, subset=[]) == nothing
        assert index(queries, subset=[[]] * len(queries)) == nothing
        assert index(queries, subset=["unknown", "0", 0]) == nothing

    def test_integers_are_not_their_digits(self, index, queries):
        assert ids(index(queries[:1], subset=[7, "9"])) == [[7]]

    def test_repeated_ids_are_found_once(self, index, queries):
        assert ids(index(queries[:1], subset=[7, 7, 7])) == [[7]]

    def test_arrays_and_tuples_will_do(self, index, queries, everything):
        expected = self.filtered(everything, [[1, 3, 5]] * 7)
        assert index(queries, k=50, subset=(1, 3, 5)) == expected
        assert index(queries, k=50, subset=np.array([1, 3, 5])) == expected
        assert index(queries, k=50, subset={1, 3, 5}) == expected
        assert index(queries, k=50, subset=[{1, 3, 5}] * len(queries)) == expected
        assert index(queries, k=50, subset=range(1, 6, 2)) == expected

    def test_a_subset_that_is_screened(self, make, rng):
        tokens, query = unit_rows(rng, 5000, D), unit_rows(rng, 1, D)
        index = make("large", k=1, dtype="float32").add_documents(range(5000), tokens[:, None])
        expected = (query.astype(np.float64) @ tokens[::2].T)[0] ** 2
        (result,) = index(query, k=8, subset=range(0, 5000, 2))
        assert [hit["id"] for hit in result] == [2 * i for i in ranking(expected, 8)]

    def test_a_single_id_is_not_a_list_of_its_letters(self, index, queries):
        with pytest.raises(TypeError, match="list of ids"):
            index(queries, subset="d4")

    def test_the_number_of_lists_must_be_that_of_the_queries(self, index, queries):
        with pytest.raises(ValueError, match="subset has 2 lists for 7 queries"):
            index(queries, subset=[[1], [3]])


class TestNumbersOfNumPy:
    """Settings that an index is made with are numbers, whoever makes them."""

    def test_are_kept_as_plain_ones(self, make, documents, queries):
        options = {"k": np.int64(K), "idf": np.float32(0.5), "background": np.float64(0.25)}
        mean = torch.full((1, D), 0.1, requires_grad=True)
        index = make(**options, corpus_mean=mean).add_documents(range(50), documents)
        again = make(**options)
        assert again(queries) == index(queries)
        assert (again.settings.k, again.settings.idf) == (K, 0.5)

    def test_have_to_be_finite(self, make):
        with pytest.raises(ValueError, match="corpus_mean contains NaN"):
            make(corpus_mean=np.full(D, np.nan))


def test_an_open_index_says_that_it_cannot_be_copied(make):
    index = make(k=K)
    for copy_of in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="open it by its folder and name"):
            copy_of(index)


class TestIds:
    IDS = ("a", 1, "1", "", "ünï", -7, 2**60, "with\nnewline")

    def test_strings_and_integers_stay_what_they_are(self, make, documents, queries):
        make(k=K).add_documents(self.IDS, documents[:8])
        index = make()
        assert len(index) == 8
        assert all(document_id in index for document_id in self.IDS)
        assert 2 not in index
        assert "-7" not in index
        (found,) = ids(index(queries[:1]))
        assert set(found) == set(self.IDS)
        assert {type(i) for i in found} == {str, int}

    def test_one_of_numpy_is_one(self, make, documents):
        index = make(k=K).add_documents(np.int64(3), documents[3])
        assert 3 in index
        assert len(index.remove_documents(np.int64(3))) == 0

    def test_numpy_ids_become_plain_ones(self, make, documents, queries):
        index = make(k=K).add_documents(np.arange(4), documents[:4])
        index.add_documents(np.array(["x", "y"]), documents[4:6])
        (found,) = ids(index(queries[:1]))
        assert {type(i) for i in found} == {str, int}
        assert set(found) == {0, 1, 2, 3, "x", "y"}

    @pytest.mark.parametrize("bad", [1.5, None, ("a",), b"a", True])
    def test_anything_else_is_refused(self, make, documents, bad):
        index = make(k=K)
        with pytest.raises(TypeError, match="a document id is a str or an int"):
            index.add_documents(["good", bad], documents[:2])
        assert len(index) == 0


class TestAdding:
    def test_returns_the_index(self, make, documents):
        index = make(k=K)
        assert index.add_documents(["a"], documents[:1]) is index
        assert index.update_documents(["a"], documents[1:2]) is index
        assert index.remove_documents(["a"]) is index

    def test_forms_of_embeddings_do_not_matter(self, make, documents, queries):
        halves = [x.astype(np.float16) for x in documents]
        tensors = [torch.from_numpy(x) for x in halves]
        forms = {
            "arrays": halves,
            "tensors": tensors,
            "bfloat-like": [x.float() for x in tensors],
            "lists": [x.tolist() for x in halves],
            "padded": torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True),
            "generator": (x for x in halves),
        }
        results = [
            make(name, k=K).add_documents(range(50), embeddings)(queries)
            for name, embeddings in forms.items()
        ]
        assert all(result == results[0] for result in results)

    def test_generators_are_pulled_batch_by_batch(self, make, documents):
        pulled = []

        def ids():
            for i in range(50):
                pulled.append(i)
                yield i

        seen = []

        def embeddings():
            for document in documents:
                seen.append(len(pulled))
                yield document

        index = make(k=K).add_documents(ids(), embeddings(), batch_size=8)
        assert len(index) == 50
        assert seen == list(range(1, 51))

    def test_a_single_document_needs_no_list(self, make, documents):
        index = make(k=K)
        index.add_documents("a", documents[10])
        index.add_documents(7, [documents[11]])
        assert len(index) == 2
        assert "a" in index
        assert 7 in index

    def test_an_id_that_is_there_is_replaced(self, make, documents, queries):
        index = make(k=K).add_documents(range(20), documents[:20])
        index.add_documents([3, 50, 5], [documents[30], documents[31], documents[32]])
        assert len(index) == 21
        fresh = make("fresh", k=K).add_documents(
            [*(i for i in range(20) if i not in (3, 5)), 3, 50, 5],
            [*(documents[i] for i in range(20) if i not in (3, 5)), *documents[30:33]],
        )
        assert index(queries, k=100) == fresh(queries, k=100)
        assert make()(queries, k=100) == fresh(queries, k=100)

    def test_update_replaces_and_adds(self, make, documents, queries):
        index = make(k=K).add_documents(["a", "b"], documents[10:12])
        index.update_documents(["b", "new"], documents[12:14])
        assert len(index) == 3
        expected = make("fresh", k=K).add_documents(
            ["a", "b", "new"], [documents[10], documents[12], documents[13]]
        )
        assert index(queries) == expected(queries)

    def test_the_documents_given_may_be_overwritten_afterwards(self, make, documents, queries):
        index = make(k=K).add_documents(range(50), documents)
        before = index(queries)
        for document in documents:
            document[:] = 0
        assert index(queries) == before

    def test_compressed_documents_are_those_of_lapack(self, make, documents):
        index = make(k=K, dtype="float32").add_documents(range(50), documents)
        bases = index.bases(range(50))
        for basis, document in zip(bases, documents, strict=True):
            np.testing.assert_allclose(basis.T @ basis, projector(document, K), atol=1e-3)


def raises_in_the_middle(documents):
    yield from documents[:20]
    raise RuntimeError("the model ran out of memory")


def with_bad_one(documents):
    return [*documents[:20], np.full((2, D), np.nan), *documents[20:]]


class TestRefusedChanges:
    """Whatever goes wrong, the index stays as it was: in memory, on disk, for all readers."""

    @pytest.fixture
    def index(self, make, documents):
        index = make(k=K).add_documents(range(20), documents[:20])
        return index.remove_documents([4])

    @pytest.mark.parametrize(
        ("ids", "embeddings", "error", "message"),
        [
            (range(51), with_bad_one, ValueError, "document 20: token 0 contains NaN"),
            (range(50), raises_in_the_middle, RuntimeError, "out of memory"),
            (range(49), list, ValueError, "49 documents_ids for 50 documents_embeddings"),
            (range(49), iter, ValueError, "more documents_embeddings than documents_ids"),
            (range(51), iter, ValueError, "document 50 has an id but no embeddings"),
            ([*range(49), 3], list, ValueError, "document id 3 is added twice"),
            ([7, 7], lambda x: x[:2], ValueError, "document id 7 is added twice"),
            ([*range(49), None], list, TypeError, "a document id is a str or an int"),
            (range(2), lambda x: [x[0], np.ones((2, 3))], ValueError, "document 1 has dimension 3"),
            (range(2), lambda x: [x[0], np.zeros((2, D))], ValueError, "document 1 has no tokens"),
            (range(2), lambda x: [x[0], np.zeros((0, D))], ValueError, "document 1 has no tokens"),
            (range(2), lambda x: [x[0], "text"], TypeError, "document 1 is not a matrix"),
            ([], lambda x: [], ValueError, "no documents were given"),
        ],
    )
    @pytest.mark.parametrize("batch_size", [8, 1024])
    def test_adding(
        self, index, make, documents, queries, ids, embeddings, error, message, batch_size
    ):
        before, on_disk = index(queries, k=100), files(index)
        with pytest.raises(error, match=message):
            index.add_documents(ids, embeddings(documents), batch_size=batch_size)
        assert files(index) == on_disk
        assert index(queries, k=100) == make()(queries, k=100) == before
        assert len(index) == 19
        index.add_documents("next", documents[0])
        assert len(make()) == 20

    @pytest.mark.parametrize("ids", [["unknown"], [1, 2, "unknown", 3], [4], ["1"], [1, 4]])
    def test_removing(self, index, make, queries, ids):
        before, on_disk = index(queries, k=100), files(index)
        with pytest.raises(UnknownDocumentError, match=repr(ids[-1] if len(ids) < 4 else ids[2])):
            index.remove_documents(ids)
        assert files(index) == on_disk
        assert index(queries, k=100) == make()(queries, k=100) == before

    def test_the_first_documents(self, make, documents, queries):
        index = make("new", k=K)
        with pytest.raises(ValueError, match="document 20: token 0"):
            index.add_documents(range(51), with_bad_one(documents), batch_size=8)
        assert len(index) == len(make("new")) == 0
        assert index(queries) == [[]] * 7
        # Nothing is fixed yet, not even the dimension.
        make("new", k=2).add_documents("a", np.eye(3))

    def test_more_directions_than_dimensions(self, make):
        index = make("new", k=K)
        with pytest.raises(ValueError, match=r"k=5 .* d=3"):
            index.add_documents("a", np.eye(3))
        assert len(make("new")) == 0

    def test_a_batch_size_of_nothing(self, index, documents):
        with pytest.raises(ValueError, match="batch_size must be a positive integer"):
            index.add_documents(["a"], documents[:1], batch_size=0)


class TestRemoving:
    def test_what_is_removed_is_not_found(self, make, documents, queries):
        index = make(k=K).add_documents(range(50), documents)
        everything = index(queries, k=50)
        index.remove_documents([3, 5])
        index.remove_documents(7)
        expected = [[hit for hit in hits if hit["id"] not in (3, 5, 7)] for hits in everything]
        assert index(queries, k=50) == expected
        assert make()(queries, k=50) == expected
        assert index.compact()(queries, k=50) == expected
        assert len(index) == 47
        assert 3 not in index

    def test_ids_may_come_from_a_generator_and_repeat(self, make, documents):
        index = make(k=K).add_documents(range(50), documents)
        index.remove_documents(i // 2 for i in range(10))
        assert len(index) == 45

    def test_a_removed_id_can_be_added_again(self, make, documents, queries):
        index = make(k=K).add_documents(["a", "b"], documents[10:12])
        index.remove_documents("a")
        index.add_documents("a", documents[12])
        expected = make("fresh", k=K).add_documents(["b", "a"], documents[11:13])
        assert index(queries) == expected(queries)


class TestSettings:
    def test_are_kept(self, make, documents):
        made = make(k=3, dtype="int8", short_documents="truncate").add_documents("a", documents[9])
        own = {"short_documents": None}
        for index in (
            make(**own),
            make(k=3, **own),
            make(dtype="int8", short_documents="truncate"),
        ):
            assert index.settings == made.settings
            assert (index.settings.k, index.settings.dtype) == (3, "int8")
            assert index.settings.short_documents == "truncate"
            assert index.dim == D
        make(**own).add_documents("b", documents[9])
        first, second = make(**own).bases(["a", "b"])
        np.testing.assert_array_equal(first, second)

    def test_by_default_k_is_at_most_the_dimension(self, make, documents):
        assert make().add_documents("a", documents[9]).settings.k == min(32, D)
        assert make().settings.k == min(32, D)
        with pytest.raises(ValueError, match="k"):
            make("other", k=D + 1).add_documents("a", documents[9])

    @pytest.mark.parametrize("index_type", [EigenLIIndex, EigenLISVIndex])
    def test_options_of_other_indexes_are_told_what_to_use_instead(
        self, index_type, tmp_path, pylate
    ):
        indexes = pylate.indexes
        others = [indexes.PLAID, indexes.Voyager, indexes.ScaNN]
        theirs = {name for other in others for name in signature(other).parameters}
        ours = set(signature(index_type).parameters)
        for name in theirs - ours - {"kwargs"}:
            with pytest.raises(TypeError, match=f"{index_type.__name__} has no option '{name}': "):
                index_type(str(tmp_path / "index"), **{name: 1})
        with pytest.raises(TypeError, match=r"nbits.*EigenLISVIndex"):
            index_type(str(tmp_path / "index"), nbits=2)
        with pytest.raises(TypeError, match=r"one device: .* such as 'cpu', not \['cpu'\]"):
            index_type(str(tmp_path / "index"), device=["cpu"])
        assert not list(tmp_path.iterdir())

    def test_defaults(self, make):
        settings = make().settings
        assert (settings.k, settings.dtype, settings.short_documents) == (32, "float16", "fill")

    @pytest.mark.parametrize(
        "other", [{"k": 4}, {"dtype": "float32"}, {"short_documents": "truncate"}]
    )
    def test_others_are_refused_by_an_index_that_exists(self, make, documents, other):
        make(k=K).add_documents("a", documents[9])
        name = next(iter(other))
        with pytest.raises(ValueError, match=rf"made with {name}=.* not .*override=True"):
            make(**other)

    def test_others_are_refused_by_an_index_that_came_to_exist(self, make, documents):
        index = make(k=3)
        make(k=4).add_documents("a", documents[9])
        with pytest.raises(ValueError, match="made with k=4, not 3"):
            index.add_documents("b", documents[9])
        assert len(make()) == 1

    def test_override_starts_again(self, make, documents, queries):
        make(k=K).add_documents(range(50), documents)
        index = make(override=True, k=2, dtype="float32")
        assert len(index) == 0
        assert index(queries) == [[]] * 7
        index.add_documents("a", np.eye(4))
        assert make().settings == index.settings
        assert make().dim == 4

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ({"k": 0}, "k must be a positive integer"),
            ({"k": 2.5}, "k must be a positive integer"),
            ({"dtype": "float64"}, "dtype must be one of float32, float16, int8"),
            ({"short_documents": "drop"}, "short_documents must be one of fill, truncate"),
            ({"memory_limit": -1}, "memory_limit must not be negative"),
        ],
    )
    def test_senseless_ones_are_refused_before_anything_is_touched(
        self, make, documents, tmp_path, bad, message
    ):
        index = make(k=K).add_documents("a", documents[9])
        on_disk = files(index)
        with pytest.raises(ValueError, match=message):
            make(override=True, **bad)
        assert files(index) == on_disk

    def test_an_index_of_another_kind_is_refused(self, make, tmp_path):
        with Store(tmp_path / "index").transaction() as transaction:
            transaction.meta["kind"] = "something else"
        with pytest.raises(IndexFormatError, match="of kind 'something else', not 'eigenli'"):
            make()

    def test_settings_that_cannot_be_read_are_refused(self, make, tmp_path):
        with Store(tmp_path / "index").transaction() as transaction:
            transaction.meta.update(kind="eigenli", settings={"k": 3, "colour": "red"}, dim=4)
        with pytest.raises(IndexFormatError, match=r"settings of .* cannot be read"):
            make()


class TestStoredBases:
    @pytest.mark.parametrize("dtype", PRECISION)
    def test_come_in_the_order_of_the_ids(self, make, documents, dtype):
        index = make(k=K, dtype=dtype)
        index.add_documents(range(40), documents[:40]).add_documents(["x", "y"], documents[40:42])
        assert index.bases([]) == []
        for basis, source in zip(index.bases(["y", 3, 3, "x"]), [41, 3, 3, 40], strict=True):
            assert basis.dtype == np.float32
            assert basis.shape == (min(K, len(documents[source])), D)
            np.testing.assert_allclose(basis @ basis.T, np.eye(len(basis)), atol=PRECISION[dtype])

    def test_unknown_ids_are_named(self, make, documents):
        index = make(k=K).add_documents(range(5), documents[:5])
        with pytest.raises(UnknownDocumentError, match="no document 'x'"):
            index.bases([1, 2, "x"])

    def test_are_not_given_for_tokens(self, make, documents):
        index = make(k=K).add_documents(range(5), documents[:5])
        with pytest.raises(ValueError, match=r"keeps bases, not tokens: index.bases\(ids\)"):
            index.get_documents_embeddings([[1]])
        with pytest.raises(TypeError, match="list of lists"):
            index.get_documents_embeddings([1, 2])


class TestSize:
    def test_of_an_empty_index(self, make):
        index = make(k=K)
        assert (len(index), index.dim, index.nbytes, index.ranks()) == (0, None, 0, {})

    def test_count_what_is_there(self, make, rng):
        index = make(k=3)
        lengths = [1, 1, 2, 3, 30, 5]
        index.add_documents(range(6), [unit_rows(rng, m, D) for m in lengths])
        assert (len(index), index.dim) == (6, D)
        assert index.ranks() == {1: 2, 2: 1, 3: 3}
        assert list(index.ranks()) == [1, 2, 3]
        assert index.nbytes == sum(map(len, files(index).values()))
        assert index.remove_documents([0, 5]).ranks() == {1: 1, 2: 1, 3: 2}

    @pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("float16", 2), ("int8", 1)])
    def test_documents_take_the_space_of_their_directions(self, make, rng, dtype, width):
        index = make(k=8, dtype=dtype)
        index.add_documents(range(2000), unit_rows(rng, 2000 * 9, 32).reshape(2000, 9, 32))
        expected = 8 * 32 * width
        assert expected <= index.nbytes / 2000 < expected + 80


class TestSeveralObjects:
    def test_a_reader_keeps_its_state_until_it_is_refreshed(self, make, documents, queries):
        writer, reader = make(k=K), make()
        assert not reader.refresh()
        writer.add_documents(range(20), documents[:20])
        assert len(reader) == 0
        assert reader.refresh()
        assert reader(queries) == writer(queries)
        before = reader(queries)
        writer.add_documents(range(10, 30), documents[20:40]).remove_documents([0]).compact()
        assert reader(queries) == before
        assert 0 in reader
        assert reader.refresh()
        assert not reader.refresh()
        assert reader(queries) == writer(queries)
        assert 0 not in reader

    def test_a_writer_that_lags_behind_does_not_undo_what_others_did(self, make, documents):
        one, other = make(k=K), make(k=K)
        one.add_documents("a", documents[9])
        other.add_documents("b", documents[10])
        one.add_documents("c", documents[11])
        assert len(one) == len(make()) == 3

    def test_one_writer_at_a_time(self, make, documents):
        one, other = make(k=K), make(k=K)

        def embeddings():
            yield documents[9]
            with pytest.raises(IndexLockedError, match="is being written by process"):
                other.add_documents("b", documents[10])
            with pytest.raises(IndexLockedError):
                other.remove_documents("b")
            with pytest.raises(IndexLockedError):
                make(override=True).add_documents("b", documents[10])
            yield documents[11]

        one.add_documents(["a", "c"], embeddings())
        other.add_documents("b", documents[10])
        assert len(make()) == 3

    def test_readers_may_search_while_documents_are_added(self, make, documents, queries):
        writer = make(k=K).add_documents(range(20), documents[:20])
        reader = make()
        before = reader(queries)

        def embeddings():
            for document in documents[20:]:
                assert reader(queries) == writer(queries) == before
                assert not reader.refresh()
                yield document

        writer.add_documents(range(20, 50), embeddings(), batch_size=10)
        assert reader.refresh()
        assert reader(queries) == writer(queries) != before


class TestClosing:
    def test_a_closed_index_says_so(self, make, documents, queries):
        index = make(k=K).add_documents(range(50), documents)
        index(queries)
        index.close()
        index.close()
        for use in (
            lambda: index(queries),
            lambda: index.add_documents("a", documents[0]),
            lambda: index.remove_documents(1),
            lambda: index.get_documents_embeddings([[1]]),
            lambda: index.bases([1]),
            lambda: len(index),
            lambda: 1 in index,
            index.ranks,
            index.refresh,
            index.compact,
        ):
            with pytest.raises(ValueError, match="the index 'index' is closed"):
                use()
        assert len(make()) == 50

    def test_a_with_block_closes(self, make, documents):
        with make(k=K) as index:
            index.add_documents("a", documents[9])
        with pytest.raises(ValueError, match="closed"):
            len(index)
        with pytest.raises(KeyError, match="mine"), make() as index:
            raise KeyError("mine")
        with pytest.raises(ValueError, match="closed"):
            len(index)

    def test_opening_creates_nothing(self, make, tmp_path, queries):
        index = make("new")
        index(queries)
        index.ranks()
        index.close()
        assert list(tmp_path.iterdir()) == []


class TestProgress:
    def test_a_bar_is_shown_if_wanted(self, make, documents, capfd):
        make(k=K, show_progress=False).add_documents(range(50), documents)
        assert capfd.readouterr().err == ""
        make(k=K, show_progress=True).add_documents(range(50), documents)
        shown = capfd.readouterr().err
        assert "Adding documents: 100%" in shown
        assert "50/50" in shown


class TestPyLate:
    def test_is_one_of_its_indexes(self, make, pylate):
        assert isinstance(make(), pylate.indexes.base.Base)
        assert RerankResult is pylate.rank.RerankResult
        assert make().is_end_to_end_index

    def test_works_with_its_retriever(self, make, documents, queries, pylate):
        index = make(k=K).add_documents(documents_ids=range(50), documents_embeddings=documents)
        retriever = pylate.retrieve.ColBERT(index=index)
        assert retriever.retrieve(queries_embeddings=queries, k=7) == index(queries, k=7)
        assert retriever.retrieve(queries_embeddings=queries[0], k=3) == index(queries[0], k=3)
        subset = [1, 2, 3]
        assert ids(retriever.retrieve(queries_embeddings=queries, k=7, subset=subset)) == ids(
            index(queries, k=7, subset=subset)
        )

    def test_agrees_with_the_reranker(self, make, documents, queries):
        index = make(k=K, dtype="float32").add_documents(range(50), documents)
        results = rerank([list(range(50))] * 7, queries, [documents] * 7, k=K)
        for ours, theirs in zip(index(queries, k=50), results, strict=True):
            reference = {hit["id"]: hit["score"] for hit in theirs}
            assert_are_the_best(ours, reference, 50, 1e-4)
