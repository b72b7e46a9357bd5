"""One index object, shared by threads that search and one that changes it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from benchmarks import synthetic

from pylate_eigenli import EigenLIIndex, EigenLISVIndex

N, K = 60, 5
VOLATILE = range(0, N, 10)  # so few that an ANN structure is mended, not made anew
DOCUMENTS = synthetic.documents(N, tokens=12, d=16)
QUERIES = DOCUMENTS[::10, :5]  # each finds one of the volatile documents, if it is there
SECONDS = 2.0


def possible_answers(index: Any) -> list[set[tuple[tuple[int, float], ...]]]:
    """What each query may find: with the volatile documents, and without them."""
    full = index(QUERIES, k=K)
    index.remove_documents(VOLATILE)
    rest = index(QUERIES, k=K)
    index.add_documents(VOLATILE, DOCUMENTS[::10])
    return [{rounded(hits) for hits in answers} for answers in zip(full, rest, strict=True)]


def rounded(hits: Any) -> tuple[tuple[int, float], ...]:
    return tuple((hit["id"], round(hit["score"], 4)) for hit in hits)


@contextmanager
def changing(index: Any) -> Iterator[None]:
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            index.remove_documents(VOLATILE)
            index.add_documents(VOLATILE, DOCUMENTS[::10])
            if isinstance(index, EigenLISVIndex):
                index.build()

    with ThreadPoolExecutor(1) as pool:
        changes = pool.submit(come_and_go)
        try:
            yield
        finally:
            done.set()
        changes.result()


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (EigenLIIndex, {"preset": "paper", "dtype": "float32"}),
        (EigenLIIndex, {"preset": "plus", "dtype": "float32"}),
        (EigenLISVIndex, {"preset": "paper", "keep_tokens": "float16", "rerank": "maxsim"}),
        (EigenLISVIndex, {"preset": "paper", "dtype": "float32", "backend": "voyager"}),
        (EigenLISVIndex, {"preset": "paper", "dtype": "float32", "backend": "faiss"}),
    ],
    ids=["subspaces", "plus", "re-ranked", "voyager", "faiss"],
)
def test_every_answer_is_that_of_a_committed_state(kind, settings, tmp_path) -> None:
    if "backend" in settings:
        pytest.importorskip(settings["backend"])
    with kind(str(tmp_path), k=4, show_progress=False, **settings) as index:
        index.add_documents(range(N), DOCUMENTS)
        if settings["preset"] == "plus":  # or documents that come back count twice as queries
            index.fit_queries(QUERIES)
        if kind is EigenLISVIndex:
            index.build()
        possible = possible_answers(index)
        end = time.monotonic() + SECONDS

        def search(seed: int) -> int:
            random, answers = np.random.default_rng(seed), 0
            while time.monotonic() < end:
                query = int(random.integers(len(QUERIES)))
                (hits,) = index(QUERIES[query : query + 1], k=K)
                assert rounded(hits) in possible[query]
                answers += 1
            return answers

        with changing(index), ThreadPoolExecutor(3) as pool:
            assert sum(pool.map(search, range(3))) > 0
