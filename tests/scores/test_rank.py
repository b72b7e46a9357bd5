from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.definition import ranking, score, unit_rows

from pylate_eigenli import rerank


@pytest.fixture
def rng():
    return np.random.default_rng(0)


class TestRerank:
    @pytest.mark.parametrize("short_documents", ["fill", "truncate"])
    def test_order_and_scores_equal_the_definition(self, rng, short_documents):
        queries = [unit_rows(rng, n, 8) for n in (3, 1)]
        documents = [[unit_rows(rng, m, 8) for m in (1, 30, 4, 2, 9)] for _ in queries]
        ids = [["a", "b", "c", "d", "e"], [1, 2, 3, 4, 5]]
        results = rerank(ids, queries, documents, k=4, short_documents=short_documents)
        for i, result in enumerate(results):
            expected = [score(queries[i], x, 4, short_documents) for x in documents[i]]
            order = ranking(expected, 5)
            assert [hit["id"] for hit in result] == [ids[i][j] for j in order]
            got = [hit["score"] for hit in result]
            np.testing.assert_allclose(got, [expected[j] for j in order], atol=1e-5)

    def test_structure_equals_pylate(self, rng, pylate):
        queries = [unit_rows(rng, 3, 8) for _ in range(2)]
        documents = [[unit_rows(rng, 5, 8) for _ in range(n)] for n in (3, 2)]
        arguments = {
            "documents_ids": [["a", 2, "c"], [1, "b"]],
            "queries_embeddings": queries,
            "documents_embeddings": documents,
            "device": "cpu",
        }
        ours, theirs = rerank(**arguments, k=4), pylate.rank.rerank(**arguments)
        for mine, other in zip(ours, theirs, strict=True):
            assert [list(hit) for hit in mine] == [list(hit) for hit in other]
            assert [[type(value) for value in hit.values()] for hit in mine] == [
                [type(value) for value in hit.values()] for hit in mine
            ]
            assert sorted(str(hit["id"]) for hit in mine) == sorted(str(hit["id"]) for hit in other)

    def test_equal_scores_keep_their_order(self, rng):
        one, other = unit_rows(rng, 6, 8), unit_rows(rng, 6, 8)
        ids = list("abcdefgh")
        documents = [one, other] * 4
        (result,) = rerank([ids], [one[:2]], [documents], k=3)
        assert [hit["id"] for hit in result] == ["a", "c", "e", "g", "b", "d", "f", "h"]
        (reverse,) = rerank([ids[::-1]], [one[:2]], [documents], k=3)
        assert [hit["id"] for hit in reverse] == ["h", "f", "d", "b", "g", "e", "c", "a"]

    def test_the_form_of_embeddings_does_not_matter(self, rng):
        query = unit_rows(rng, 3, 8)
        documents = [unit_rows(rng, m, 8) for m in (5, 2)]
        padded = np.zeros((2, 6, 8), np.float32)
        padded[0, :5], padded[1, :2] = documents
        expected = rerank([[1, 2]], [query], [documents], k=3)
        for queries in (query, query[None], torch.from_numpy(query), [query.tolist()]):
            for group in (
                documents,
                [torch.from_numpy(x) for x in documents],
                [x.tolist() for x in documents],
                padded,
            ):
                assert rerank([[1, 2]], queries, [group], k=3) == expected
        assert rerank([[1, 2]], [query], padded[None], k=3) == expected

    def test_a_query_without_candidates_has_no_results(self, rng):
        queries = [unit_rows(rng, 3, 8) for _ in range(2)]
        results = rerank([[], ["a"]], queries, [[], [unit_rows(rng, 4, 8)]], k=2)
        assert [[hit["id"] for hit in result] for result in results] == [[], ["a"]]

    def test_no_queries_have_no_results(self):
        assert rerank([], [], []) == []

    def test_iterators_are_accepted(self, rng):
        queries = [unit_rows(rng, 3, 8) for _ in range(2)]
        documents = [[unit_rows(rng, 5, 8) for _ in range(3)] for _ in range(2)]
        ids = [["a", "b", "c"]] * 2
        expected = rerank(ids, queries, documents, k=2)
        assert rerank(iter(ids), iter(queries), iter(documents), k=2) == expected

    def test_different_numbers_of_queries_and_documents_are_refused(self, rng):
        query, document = unit_rows(rng, 3, 8), unit_rows(rng, 4, 8)
        with pytest.raises(ValueError, match="1 queries, 2 lists of ids and 1 lists of documents"):
            rerank([["a"], ["b"]], [query], [[document]])
        with pytest.raises(ValueError, match="1 queries, 1 lists of ids and 2 lists of documents"):
            rerank([["a"]], [query], [[document], [document]])
        with pytest.raises(ValueError, match="query 1 has 2 ids for 1 documents"):
            rerank([["a"], ["b", "c"]], [query] * 2, [[document], [document]], k=2)

    def test_bad_embeddings_are_named(self, rng):
        query, document = unit_rows(rng, 3, 8), unit_rows(rng, 4, 8)
        broken = document.copy()
        broken[2, 0] = np.nan
        with pytest.raises(ValueError, match="document 'b': token 2 contains NaN"):
            rerank([["a", "b"]], [query], [[document, broken]], k=2)
        with pytest.raises(ValueError, match="query 0: token 2 contains NaN"):
            rerank([["a"]], [broken], [[document]], k=2)
        with pytest.raises(ValueError, match="document 'a' has dimension 5, expected 8"):
            rerank([["a"]], [query], [[unit_rows(rng, 4, 5)]], k=2)
