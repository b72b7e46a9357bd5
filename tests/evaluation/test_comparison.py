"""Both methods are given the same chances, and the figures are what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pylate import rank

from pylate_eigenli.evaluation.comparison import MaxSimScan, compare

DIMENSIONS = 16
DOCUMENTS = 300  # more than two batches of the scan


def unit(rng: np.random.Generator, rows: int) -> NDArray[np.float32]:
    vectors = rng.normal(size=(rows, DIMENSIONS))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def ids() -> list[str]:
    return [f"d{i}" for i in range(DOCUMENTS)]


@pytest.fixture
def documents() -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    return [unit(rng, int(rng.integers(4, 12))) for _ in range(DOCUMENTS)]


class TestMaxSimScan:
    def test_it_ranks_like_pylate(
        self, ids: list[str], documents: list[NDArray[np.float32]]
    ) -> None:
        # Many tokens, so that no query token is farther than a right angle from all of them:
        # PyLate pads with zeros, which would then be the nearest.
        queries = [document[:3] for document in documents[:5]]
        halved = [document.astype(np.float16).astype(np.float32) for document in documents]
        scan = MaxSimScan(ids, documents)
        for query, hits in zip(queries, scan(queries, k=10), strict=True):
            (expected,) = rank.rerank([ids], [query], [halved])
            assert [hit["id"] for hit in hits] == [hit["id"] for hit in expected[:10]]
            np.testing.assert_allclose(
                [hit["score"] for hit in hits], [hit["score"] for hit in expected[:10]], rtol=1e-5
            )

    def test_size_is_that_of_the_tokens_in_half_precision(
        self, ids: list[str], documents: list[NDArray[np.float32]]
    ) -> None:
        tokens = sum(len(document) for document in documents)
        expected = tokens * DIMENSIONS * 2 / DOCUMENTS
        assert MaxSimScan(ids, documents).bytes_per_document == expected

    def test_asking_for_more_than_there_is_returns_all(
        self, ids: list[str], documents: list[NDArray[np.float32]]
    ) -> None:
        (hits,) = MaxSimScan(ids[:3], documents[:3])([documents[0]], k=10)
        assert {hit["id"] for hit in hits} == set(ids[:3])


class TestCompare:
    def test_a_document_finds_itself_by_both_methods(
        self, ids: list[str], documents: list[NDArray[np.float32]], tmp_path: Path
    ) -> None:
        searches: list[int] = []
        maxsim, eigenli = compare(
            ids,
            documents,
            [document[:4] for document in documents[:20]],
            ids[:20],
            index_folder=tmp_path,
            k=4,
            advance=searches.append,
        )
        assert sum(searches) == 2 * 20
        assert maxsim.success_at_1 == maxsim.mrr_at_10 == 1
        assert 0.5 < eigenli.success_at_1 <= eigenli.mrr_at_10 <= 1
        # Four directions in half precision, and what the index needs besides.
        assert 4 * DIMENSIONS * 2 <= eigenli.bytes_per_document < maxsim.bytes_per_document * 2

    def test_a_wrong_answer_counts_for_nothing(
        self, ids: list[str], documents: list[NDArray[np.float32]], tmp_path: Path
    ) -> None:
        (maxsim, eigenli) = compare(
            ids, documents, [documents[0]], ["absent"], index_folder=tmp_path, k=4
        )
        for measurement in (maxsim, eigenli):
            assert (measurement.success_at_1, measurement.mrr_at_10) == (0, 0)
