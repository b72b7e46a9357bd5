"""Choose the settings of a new index by its first documents, without queries or judgements.

Runs of tokens of some documents serve as queries. A setting is as good as the ten documents that it
finds best are those of MaxSim over all tokens. The document that a run is from would find itself
with any setting, and does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..scores.maxsim import maxsim_scores
from ..spectral.background import Queries
from ..spectral.settings import PRESETS
from ..tokens import TokenBatch, offsets_of
from ..vectors.encoder import SubspaceEncoder
from ..vectors.packing import pack_queries
from ..vectors.ranking import top_k

FEWEST_DOCUMENTS = 100
"""The ten best of fewer documents say little, and so do their statistics."""
_CANDIDATES: Mapping[str, Mapping[str, Any]] = {
    "plus": PRESETS["plus"],
    "plus, filter=hard": {**PRESETS["plus"], "filter": "hard"},
    "paper": PRESETS["paper"],
}
# Runs of document tokens are longer and more even than queries, which favours the hard cut a little:
# a candidate replaces the first only if it finds this share more of MaxSim's best documents.
_CLEARLY = 0.05
_DOCUMENTS, _QUERIES, _LENGTHS, _BEST = 512, 64, (4, 8, 16, 32), 10


@dataclass(frozen=True)
class Calibration:
    """What was chosen, and why.

    Parameters
    ----------
    chosen
        The name of the chosen settings.
    agreements
        The share of MaxSim's ten best documents that each candidate finds, by name. Empty if there
        were too few documents to tell; the paper's settings are chosen then.
    """

    chosen: str
    agreements: Mapping[str, float]

    @property
    def settings(self) -> Mapping[str, Any]:
        """The chosen settings."""
        return _CANDIDATES[self.chosen]


def calibrate(encoder: SubspaceEncoder, documents: TokenBatch, in_rows: bool = True) -> Calibration:
    """Choose filter, standardisation and background for documents like those given.

    The preset ``"plus"`` is chosen unless another candidate is clearly better.

    Parameters
    ----------
    encoder
        Has the other settings.
    documents
        The first documents of the collection.
    in_rows
        Whether the index keeps k directions of a document, or one vector with all of them.

    Examples
    --------
    >>> from pylate_eigenli.spectral.settings import SpectralSettings
    >>> from pylate_eigenli.tokens import collect
    >>> few = collect([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> calibrate(SubspaceEncoder.of(SpectralSettings()), few)
    Calibration(chosen='paper', agreements={})
    """
    if len(documents) < FEWEST_DOCUMENTS:
        return Calibration("paper", {})
    sample = _chosen(documents, _spread(len(documents), _DOCUMENTS))
    runs, owners = _runs(sample)
    wanted = _best(maxsim_scores(runs, sample), owners)
    agreements = {}
    for name, options in _CANDIDATES.items():
        candidate = encoder.with_settings(replace(encoder.settings, **options)).fitted_to(sample)
        found = _best(_scores(candidate, runs, sample, in_rows), owners)
        common = [len(np.intersect1d(a, b)) / len(a) for a, b in zip(wanted, found, strict=True)]
        agreements[name] = round(float(np.mean(common)), 3)
    first, best = next(iter(agreements)), max(agreements, key=lambda name: agreements[name])
    clearly = agreements[best] > agreements[first] + _CLEARLY
    return Calibration(best if clearly else first, agreements)


def _scores(
    encoder: SubspaceEncoder, runs: TokenBatch, documents: TokenBatch, in_rows: bool
) -> NDArray[np.float32]:
    """Return the scores of documents for runs, known as queries. Shape: (runs, documents)."""
    encoder = encoder.with_queries(runs)
    queries = Queries(runs, encoder.transforms.queries(runs))
    standardise = encoder.transforms.standardise
    expected = None if standardise is None else standardise.expected_query
    if expected is not None:
        queries = expected.query_filter(0.0, encoder.settings.background)(runs, queries.tokens)
    subspaces = encoder.subspaces(documents) if in_rows else None
    packed = encoder.packed(documents, subspaces)
    scores: NDArray[np.float32] = (
        pack_queries(queries.tokens, queries.against) @ packed.mT
    ).numpy()
    return scores


def _spread(n: int, wanted: int) -> NDArray[np.int64]:
    """Return positions of at most so many of n items, spread over all of them."""
    return np.unique(np.linspace(0, n - 1, min(n, wanted)).astype(np.int64))


def _chosen(batch: TokenBatch, items: NDArray[np.int64]) -> TokenBatch:
    bounds = zip(batch.offsets[items].tolist(), batch.offsets[items + 1].tolist(), strict=True)
    parts = [batch.tokens[begin:end] for begin, end in bounds]
    return TokenBatch(torch.cat(parts).cpu(), offsets_of([len(part) for part in parts]))


def _runs(documents: TokenBatch) -> tuple[TokenBatch, NDArray[np.int64]]:
    """Return runs of several lengths from the middles of documents, and the documents."""
    owners = _spread(len(documents), _QUERIES)
    begin, end = documents.offsets[owners], documents.offsets[owners + 1]
    wanted = np.resize(_LENGTHS, len(owners))
    first = np.maximum((begin + end - wanted) // 2, begin)
    last = np.minimum(first + wanted, end)
    runs = [documents.tokens[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    return TokenBatch(torch.cat(runs), offsets_of(last - first)), owners


def _best(scores: NDArray[np.float32], owners: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    scores[np.arange(len(owners)), owners] = -np.inf
    return [top_k(row, _BEST) for row in scores]
