"""Retrieval metrics per query: nDCG with linear gain, truncated Recall and MRR.

Truncated Recall divides by min(cutoff, number of relevant documents), so that a perfect ranking
scores 1 even where more documents are relevant than the cutoff admits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Qrels = Mapping[str, Mapping[str, int]]
Run = Mapping[str, Sequence[str]]


def ndcg(ranking: Sequence[str], relevance: Mapping[str, int], cutoff: int) -> float:
    """Normalised discounted cumulative gain of a ranking of ids, best first.

    Examples
    --------
    >>> round(ndcg(["b", "a"], {"a": 1}, cutoff=10), 3)
    0.631
    """
    discounts = 1 / np.log2(np.arange(2, cutoff + 2))
    gains = [max(relevance.get(document, 0), 0) for document in ranking[:cutoff]]
    ideal = sorted((gain for gain in relevance.values() if gain > 0), reverse=True)[:cutoff]
    best = float(np.dot(ideal, discounts[: len(ideal)]))
    return float(np.dot(gains, discounts[: len(gains)])) / best if best else 0.0


def recall(ranking: Sequence[str], relevance: Mapping[str, int], cutoff: int) -> float:
    """Share of the relevant documents found, divided by the cutoff if there are more of them."""
    relevant = {document for document, gain in relevance.items() if gain > 0}
    found = len(relevant.intersection(ranking[:cutoff]))
    return found / min(len(relevant), cutoff) if relevant else 0.0


def mrr(ranking: Sequence[str], relevance: Mapping[str, int], cutoff: int) -> float:
    """Reciprocal of the rank of the first relevant document, 0 beyond the cutoff."""
    for rank, document in enumerate(ranking[:cutoff], start=1):
        if relevance.get(document, 0) > 0:
            return 1 / rank
    return 0.0


METRICS = {"nDCG": ndcg, "Recall": recall, "MRR": mrr}


def evaluate(run: Run, qrels: Qrels, metric: str, cutoff: int) -> NDArray[np.float64]:
    """Return the metric of every query with a relevant document, in the order of qrels.

    A judged query that the run does not answer counts as 0.
    """
    judged = [query for query, relevance in qrels.items() if any(g > 0 for g in relevance.values())]
    return np.array([METRICS[metric](run.get(query, []), qrels[query], cutoff) for query in judged])
