"""Choose k, filter, idf and background on one's own queries.

With relevance judgements the measure is nDCG@10; without any it is agreement with MaxSim over all
tokens: nDCG@10 where MaxSim's ten best documents are the relevant ones. What is reported of the
choice is cross-validated: each fifth of the queries is judged by what is best for the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from ..scores.maxsim import maxsim_scores
from ..spectral.settings import SpectralSettings
from ..spectral.subspace import Subspaces, check_k
from ..tokens import TokenBatch, collect
from ..vectors.ranking import top_k
from .methods import EigenLI
from .metrics import ndcg

_KS = (16, 32, 64)
_FOLDS = 5
_CUTOFF = 10
_BYTES_PER_NUMBER = 2  # float16, the index's default
_WORTH = 0.005  # of the measure: what a larger index has to bring at least


@dataclass(frozen=True)
class Trial:
    """A setting and what it reaches.

    Parameters
    ----------
    settings
        The setting.
    score
        Mean of the measure over all queries.
    bytes_per_document
        What it takes in an ``EigenLIIndex`` of float16. A single vector takes d (d + 1) / 2 bytes
        at int8, whatever the setting.
    per_query
        The measure of every query. Shape: (queries,).

    Examples
    --------
    >>> trial = Trial(SpectralSettings(k=8), 0.5, 2048.0, np.array([0.0, 1.0]))
    >>> trial.settings.k, float(trial.per_query.mean())
    (8, 0.5)
    """

    settings: SpectralSettings
    score: float
    bytes_per_document: float
    per_query: NDArray[np.float64]


@dataclass(frozen=True)
class Tuning:
    """What :func:`tune` found.

    Parameters
    ----------
    best
        The smallest setting that is about as good as the best one.
    cross_validated
        Score of the choice on queries that had no part in it.
    paper
        The paper's setting at the same k, to compare with.
    measure
        What was measured.
    trials
        All settings, the best first.

    Examples
    --------
    >>> import torch
    >>> documents = torch.nn.functional.normalize(torch.randn(30, 12, 8), dim=-1)
    >>> tuning = tune(range(30), documents, documents[:10, :3], ks=[2, 4], show_progress=False)
    >>> tuning.best in tuning.trials
    True
    """

    best: Trial
    cross_validated: float
    paper: Trial
    measure: str
    trials: tuple[Trial, ...]

    @property
    def options(self) -> dict[str, Any]:
        """What to pass to ``EigenLIIndex`` or ``EigenLISVIndex``."""
        chosen = self.best.settings
        return {name: getattr(chosen, name) for name in ("k", "filter", "idf", "background")}


def tune(
    documents_ids: Sequence[Any],
    documents_embeddings: Any,
    queries_embeddings: Any,
    qrels: Sequence[Mapping[Any, int]] | None = None,
    *,
    ks: Iterable[int] | None = None,
    filters: Iterable[str] = ("hard", "soft", "ridge"),
    idfs: Iterable[float] = (0.0, 0.2, 0.4),
    backgrounds: Iterable[float] = (0.0, 0.25, 0.5, 0.75),
    seed: int = 0,
    show_progress: bool = True,
) -> Tuning:
    """Choose k, filter, idf and background.

    Every combination is tried, so give a sample of a large collection: a few thousand documents,
    among them the relevant ones, and some hundred queries.

    Parameters
    ----------
    documents_ids
        An id per document.
    documents_embeddings
        Their token embeddings.
    queries_embeddings
        Those of the queries.
    qrels
        For each query the gains of its relevant documents by id. Without them the ten documents
        that MaxSim finds best are relevant.
    ks, filters, idfs, backgrounds
        What to try. By default k is 16, 32 or 64, as far as tokens have so many dimensions, and
        the filters are ``hard``, ``soft`` and ``ridge``.
    seed
        Seeds the division of the queries.
    show_progress
        Whether to show a progress bar.

    Examples
    --------
    >>> import torch
    >>> unit = torch.nn.functional.normalize
    >>> documents = unit(torch.randn(30, 12, 8), dim=-1)
    >>> tuning = tune(range(30), documents, documents[:10, :3], ks=[2, 4], show_progress=False)
    >>> sorted(tuning.options)
    ['background', 'filter', 'idf', 'k']
    """
    documents = collect(documents_embeddings, device="cpu")
    queries = collect(queries_embeddings, dim=documents.dim, device="cpu", names="query")
    if len(documents_ids) != len(documents):
        raise ValueError(f"{len(documents_ids)} documents_ids for {len(documents)} documents")
    measure = "nDCG@10"
    if qrels is None:
        measure = "nDCG@10 with MaxSim's ten best as the relevant documents"
        qrels = _best_by_maxsim(documents_ids, documents, queries)
    elif len(qrels) != len(queries):
        raise ValueError(f"{len(qrels)} qrels for {len(queries)} queries")
    tried = [k for k in _KS if k <= documents.dim] or [documents.dim] if ks is None else list(ks)
    filters, options = list(filters), list(product(idfs, backgrounds))
    if not (tried and filters and options):
        raise ValueError("there is nothing to try: ks, filters, idfs or backgrounds are empty")
    for k in tried:
        check_k(k, documents.dim)

    def attempt(settings: SpectralSettings, subspaces: Subspaces) -> Trial:
        nbytes = _BYTES_PER_NUMBER * documents.dim * float(subspaces.ranks.mean())
        method = EigenLI("tried", settings)
        if method.is_relative:
            method = method.among([subspaces])
        scores = method.scores(method.encode_queries(queries), subspaces)
        values = _ndcg(scores, documents_ids, qrels)
        return Trial(settings, float(values.mean()), nbytes, values)

    trials: list[Trial] = []
    with tqdm(
        total=len(tried) * len(filters) * len(options), desc="Tuning", disable=not show_progress
    ) as progress:
        for k, filter in product(tried, filters):
            shape = SpectralSettings(k=k, filter=filter)
            subspaces = shape.subspaces(documents)
            for idf, background in options:
                trials.append(attempt(replace(shape, idf=idf, background=background), subspaces))
                progress.update()
    best = _choose(trials, np.arange(len(queries)))
    paper = SpectralSettings(k=best.settings.k)
    known = [trial for trial in trials if trial.settings == paper]
    return Tuning(
        best=best,
        cross_validated=_cross_validated(trials, len(queries), seed),
        paper=known[0] if known else attempt(paper, paper.subspaces(documents)),
        measure=measure,
        trials=tuple(sorted(trials, key=lambda trial: -trial.score)),
    )


def _best_by_maxsim(
    ids: Sequence[Any], documents: TokenBatch, queries: TokenBatch
) -> list[dict[Any, int]]:
    scores = maxsim_scores(queries, documents)
    return [{ids[i]: 1 for i in top_k(row, _CUTOFF)} for row in scores]


def _ndcg(
    scores: NDArray[np.float32], ids: Sequence[Any], qrels: Sequence[Mapping[Any, int]]
) -> NDArray[np.float64]:
    return np.array(
        [
            ndcg([ids[i] for i in top_k(row, _CUTOFF)], relevance, _CUTOFF)
            for row, relevance in zip(scores, qrels, strict=True)
        ]
    )


def _choose(trials: Sequence[Trial], queries: NDArray[np.int64]) -> Trial:
    """Return the smallest, and of equals the best, of those that are about as good as the best."""
    scores = [float(trial.per_query[queries].mean()) for trial in trials]
    good = [i for i, score in enumerate(scores) if score >= max(scores) * (1 - _WORTH)]
    return trials[min(good, key=lambda i: (trials[i].settings.k, -scores[i]))]


def _cross_validated(trials: Sequence[Trial], n: int, seed: int) -> float:
    folds = np.array_split(np.random.default_rng(seed).permutation(n), min(_FOLDS, n))
    held_out = []
    for fold in folds:
        others = np.setdiff1d(np.arange(n), fold)
        chosen = _choose(trials, others if len(others) else fold)
        held_out.append(chosen.per_query[fold])
    return float(np.concatenate(held_out).mean())
