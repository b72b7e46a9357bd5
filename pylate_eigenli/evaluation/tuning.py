"""Choose k, standardisation, filter, idf and background on your own queries.

With relevance judgements the measure is nDCG@10. Without them it is agreement with MaxSim over all
tokens: nDCG@10 where MaxSim's ten best documents are the relevant ones. The reported score of the
choice is cross-validated: each fifth of the queries is scored with the best setting for the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from ..indexes.eigenli import EigenLIIndex
from ..scores.maxsim import maxsim_scores
from ..spectral.settings import PRESETS, SpectralSettings
from ..spectral.subspace import check_k
from ..tokens import collect
from ..vectors.ranking import top_k
from .bootstrap import paired_interval
from .metrics import ndcg

_KS = (16, 32, 64)
_FOLDS = 5
_CUTOFF = 10
_BYTES_PER_NUMBER = 2  # float16, the index's default
_WORTH = 0.005  # relative gain that justifies a larger index


@dataclass(frozen=True)
class Trial:
    """A setting and its score, the mean of the measure over all queries.

    Parameters
    ----------
    bytes_per_document
        Size of the directions in an ``EigenLIIndex`` of float16. A single vector takes
        d (d + 1) / 2 bytes at int8, whatever the setting.
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
    """The result of :func:`tune`.

    Parameters
    ----------
    best
        The recommended setting: the preset ``"plus"`` unless another one is better beyond chance,
        with the smallest k that is about as good as the best.
    cross_validated
        Score of the choice on queries that had no part in it.
    paper
        The paper's setting at the same k, to compare with.
    measure
        Name of the measure.
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
        """The arguments for ``EigenLIIndex`` or ``EigenLISVIndex``."""
        chosen = self.best.settings
        names = ("k", "standardise", "filter", "idf", "background")
        return {name: getattr(chosen, name) for name in names}


def tune(
    documents_ids: Sequence[Any],
    documents_embeddings: Any,
    queries_embeddings: Any,
    qrels: Sequence[Mapping[Any, int]] | None = None,
    *,
    ks: Iterable[int] | None = None,
    standardise: Iterable[bool] = (True, False),
    filters: Iterable[str] = ("ridge", "hard"),
    idfs: Iterable[float] = (0.0,),
    backgrounds: Iterable[float] = (0.0, 0.5, 0.75),
    seed: int = 0,
    show_progress: bool = True,
) -> Tuning:
    """Choose k, standardisation, filter, idf and background.

    Every combination is indexed and searched, so pass a sample of a large collection: a few thousand
    documents, the relevant ones among them, and a few hundred queries.

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
    ks, standardise, filters, idfs, backgrounds
        Values to try. By default k is 16, 32 or 64, up to the dimension of the tokens.
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
    ['background', 'filter', 'idf', 'k', 'standardise']
    """
    documents = collect(documents_embeddings, device="cpu")
    queries = collect(queries_embeddings, dim=documents.dim, device="cpu", names="query")
    if len(documents_ids) != len(documents):
        raise ValueError(f"{len(documents_ids)} documents_ids for {len(documents)} documents")
    measure = "nDCG@10"
    if qrels is None:
        measure = "nDCG@10 with MaxSim's ten best as the relevant documents"
        found = (top_k(scores, _CUTOFF) for scores in maxsim_scores(queries, documents))
        qrels = [{documents_ids[row]: 1 for row in rows} for rows in found]
    elif len(qrels) != len(queries):
        raise ValueError(f"{len(qrels)} qrels for {len(queries)} queries")
    tried = [k for k in _KS if k <= documents.dim] or [documents.dim] if ks is None else list(ks)
    shapes = list(product(tried, standardise, filters))
    options = list(product(idfs, backgrounds))
    if not (shapes and options):
        raise ValueError("there is nothing to try: one of the lists of values is empty")
    for k in tried:
        check_k(k, documents.dim)

    def trials_of(shape: SpectralSettings, options: Iterable[tuple[float, float]]) -> list[Trial]:
        """Index the documents once and search with every idf and background."""
        with (
            TemporaryDirectory() as folder,
            EigenLIIndex(
                folder,
                k=shape.k,
                standardise=shape.standardise,
                filter=shape.filter,
                show_progress=False,
            ) as index,
        ):
            index.add_documents(range(len(documents)), list(documents))
            directions = sum(rank * count for rank, count in index.ranks().items())
            trials = []
            for idf, background in options:
                found = index(list(queries), k=_CUTOFF, idf=idf, background=background)
                values = np.array(
                    [
                        ndcg([documents_ids[int(hit["id"])] for hit in hits], relevance, _CUTOFF)
                        for hits, relevance in zip(found, qrels, strict=True)
                    ]
                )
                settings = replace(shape, idf=idf, background=background)
                nbytes = _BYTES_PER_NUMBER * documents.dim * directions / len(documents)
                trials.append(Trial(settings, float(values.mean()), nbytes, values))
                progress.update()
        return trials

    trials: list[Trial] = []
    with tqdm(
        total=len(shapes) * len(options), desc="Tuning", disable=not show_progress
    ) as progress:
        for k, standardised, filter in shapes:
            shape = SpectralSettings(k=k, standardise=standardised, filter=filter)
            trials += trials_of(shape, options)
        best = _choose(trials, np.arange(len(queries)))
        paper = SpectralSettings(k=best.settings.k)
        known = [trial for trial in trials if trial.settings == paper]
        reference = known or trials_of(paper, [(0.0, 0.0)])
    return Tuning(
        best=best,
        cross_validated=_cross_validated(trials, len(queries), seed),
        paper=reference[0],
        measure=measure,
        trials=tuple(sorted(trials, key=lambda trial: -trial.score)),
    )


def _choose(trials: Sequence[Trial], queries: NDArray[np.int64]) -> Trial:
    """Return the trial to recommend, judged by some of the queries.

    The preset ``"plus"`` is kept unless another setting is better beyond chance: the best of many
    trials owes something to luck. Of the chosen setting, k is the smallest that is about as good as
    the best.
    """
    by_setting: dict[SpectralSettings, list[Trial]] = {}
    for trial in trials:
        by_setting.setdefault(replace(trial.settings, k=1), []).append(trial)

    def score(trial: Trial) -> float:
        return float(trial.per_query[queries].mean())

    best = max(trials, key=score)
    chosen = by_setting[replace(best.settings, k=1)]
    preset = by_setting.get(SpectralSettings(k=1, **PRESETS["plus"]), [])
    if preset:
        usual = max(preset, key=score)
        if paired_interval(best.per_query[queries], usual.per_query[queries]).low <= 0:
            chosen = preset
    enough = (1 - _WORTH) * max(map(score, chosen))
    good = [trial for trial in chosen if score(trial) >= enough]
    return min(good, key=lambda trial: trial.settings.k)


def _cross_validated(trials: Sequence[Trial], n: int, seed: int) -> float:
    folds = np.array_split(np.random.default_rng(seed).permutation(n), min(_FOLDS, n))
    held_out = []
    for fold in folds:
        others = np.setdiff1d(np.arange(n), fold)
        chosen = _choose(trials, others if len(others) else fold)
        held_out.append(chosen.per_query[fold])
    return float(np.concatenate(held_out).mean())
