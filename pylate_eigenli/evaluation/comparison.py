"""EigenLI beside exhaustive MaxSim: the same token embeddings, queries and clock for both."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from pylate.rank import RerankResult
from pylate.scores import colbert_scores

from ..indexes.eigenli import EigenLIIndex

if TYPE_CHECKING:
    Embeddings = Sequence[NDArray[np.float32]]
    Search = Callable[..., list[list[RerankResult]]]

DEPTH = 10
"""Ranks looked at for MRR."""

_BATCH = 128  # documents scored at once: their float32 copy stays in the processor's cache


@dataclass(frozen=True)
class Measurement:
    """What one method costs, and how well it finds known items."""

    method: str
    bytes_per_document: float
    build_seconds: float
    milliseconds_per_query: float
    success_at_1: float
    mrr_at_10: float


class MaxSimScan:
    """Every token embedding kept in memory as float16, every document scored for every query.

    Parameters
    ----------
    documents_ids
        One id per document.
    documents_embeddings
        One float array of shape (tokens, dimensions) per document.

    Examples
    --------
    >>> scan = MaxSimScan(["x", "y"], [np.eye(2)[:1], np.eye(2)[1:]])
    >>> scan([np.array([[0.0, 1.0]], dtype=np.float32)], k=1)
    [[{'id': 'y', 'score': 1.0}]]

    """

    def __init__(self, documents_ids: Sequence[str], documents_embeddings: Embeddings) -> None:
        # Documents of one length together, so that batches hold little padding.
        order = sorted(range(len(documents_ids)), key=lambda row: len(documents_embeddings[row]))
        tokens = [torch.from_numpy(documents_embeddings[row]).half() for row in order]
        self._ids = [documents_ids[row] for row in order]
        self._batches = [
            torch.nn.utils.rnn.pad_sequence(tokens[start : start + _BATCH], batch_first=True)
            for start in range(0, len(tokens), _BATCH)
        ]
        self.bytes_per_document = sum(document.nbytes for document in tokens) / len(tokens)

    def __call__(self, queries_embeddings: Embeddings, k: int = 10) -> list[list[RerankResult]]:
        """Rank the documents for each query and return the best ``k``."""
        return [self._search(torch.from_numpy(query), k) for query in queries_embeddings]

    def _search(self, query: torch.Tensor, k: int) -> list[RerankResult]:
        # Scored in float32: processors without half-precision arithmetic are slower in float16.
        scores = torch.cat(
            [colbert_scores(query[None], batch.float())[0] for batch in self._batches]
        )
        best = scores.topk(min(k, len(scores)))
        return [
            RerankResult(id=self._ids[row], score=score)
            for score, row in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]


def compare(
    documents_ids: Sequence[str],
    documents_embeddings: Embeddings,
    queries_embeddings: Embeddings,
    answers: Sequence[str],
    *,
    index_folder: Path,
    k: int = 32,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Measurement]:
    """Measure exhaustive MaxSim and EigenLI on one collection.

    Parameters
    ----------
    documents_ids, documents_embeddings
        The collection: ids, and one float32 array of shape (tokens, dimensions) each.
    queries_embeddings
        One float32 array of shape (tokens, dimensions) per query.
    answers
        For each query, the id of the one document to be found.
    index_folder
        Where the EigenLI index is written.
    k
        Directions EigenLI keeps of a document.
    advance
        Called with the number of searches done since the last call.

    Returns
    -------
    list[Measurement]
        MaxSim, then EigenLI.

    """
    start = time.perf_counter()
    scan = MaxSimScan(documents_ids, documents_embeddings)
    seconds = time.perf_counter() - start
    maxsim = Measurement(
        "MaxSim, all tokens",
        scan.bytes_per_document,
        seconds,
        *_search_all(scan, queries_embeddings, answers, advance),
    )

    start = time.perf_counter()
    with EigenLIIndex(
        index_folder=str(index_folder),
        index_name="comparison",
        override=True,
        k=k,
        show_progress=False,
    ) as index:
        index.add_documents(
            documents_ids=list(documents_ids), documents_embeddings=list(documents_embeddings)
        )
        seconds = time.perf_counter() - start
        eigenli = Measurement(
            f"EigenLI, k={k}",
            index.stats().bytes_per_document,
            seconds,
            *_search_all(index, queries_embeddings, answers, advance),
        )
    return [maxsim, eigenli]


def _search_all(
    search: Search,
    queries_embeddings: Embeddings,
    answers: Sequence[str],
    advance: Callable[[int], None],
) -> tuple[float, float, float]:
    """Median milliseconds of a search, success at 1, and MRR at ``DEPTH``."""
    search([queries_embeddings[0]], k=DEPTH)  # what happens only once is nobody's latency
    seconds, reciprocal_ranks = [], []
    for query, answer in zip(queries_embeddings, answers, strict=True):
        start = time.perf_counter()
        (hits,) = search([query], k=DEPTH)
        seconds.append(time.perf_counter() - start)
        ids = [hit["id"] for hit in hits]
        reciprocal_ranks.append(1 / (ids.index(answer) + 1) if answer in ids else 0.0)
        advance(1)
    ranks = np.array(reciprocal_ranks)
    return float(np.median(seconds)) * 1000, float((ranks == 1).mean()), float(ranks.mean())
