"""Choose the settings of a new index by its first documents, without queries or judgements.

Runs of tokens of some documents serve as queries. The measure of a setting is how many of the ten
documents that MaxSim over all tokens finds best it finds too. The document that a run is from would
be found with any setting, and does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..scores.maxsim import maxsim_scores
from ..spectral.background import Queries
from ..spectral.settings import PRESETS
from ..spectral.subspace import Subspaces
from ..tokens import TokenBatch
from ..vectors.encoder import SubspaceEncoder
from ..vectors.packing import pack_queries, packed_dim
from ..vectors.ranking import top_k
from .agreement import pseudo_queries, spread

FEWEST_DOCUMENTS = 100
"""The ten best of fewer documents say little."""
FEWEST_STANDARDISED = 40
"""The mean token of fewer documents is not that of the collection they grow into."""
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
        were too few documents to tell: fewer than 40 get the preset ``"paper"``, others ``"plus"``.
    """

    chosen: str
    agreements: Mapping[str, float]

    @property
    def settings(self) -> Mapping[str, Any]:
        """The chosen settings."""
        return _CANDIDATES[self.chosen]

    def is_early(self, documents: int) -> bool:
        """Return whether so many documents would choose, and the first ones were too few to."""
        few = self.chosen == "paper" and not self.agreements
        return few and documents >= FEWEST_DOCUMENTS


def calibrate(
    encoder: SubspaceEncoder,
    documents: TokenBatch,
    in_rows: bool = True,
    width: int | None = None,
) -> Calibration:
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
    width
        Dimension that these vectors must have, because a projection was fitted to them. Only some
        candidates have it: standardised tokens have one dimension more.

    Examples
    --------
    >>> from pylate_eigenli.spectral.settings import SpectralSettings
    >>> from pylate_eigenli.tokens import collect
    >>> few = collect([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> calibrate(SubspaceEncoder.of(SpectralSettings()), few)
    Calibration(chosen='paper', agreements={})
    """
    dim = encoder.transforms.dim(documents.dim)
    candidates = {
        name: options
        for name, options in _CANDIDATES.items()
        if width in (None, packed_dim(dim + options["standardise"]))
    }
    if len(documents) < FEWEST_DOCUMENTS:
        usual = "paper" if len(documents) < FEWEST_STANDARDISED else "plus"
        return Calibration(usual if usual in candidates else next(iter(candidates)), {})
    chosen = documents.chosen(spread(len(documents), _DOCUMENTS).tolist())
    sample = TokenBatch(chosen.tokens.cpu(), chosen.offsets)
    runs, owners = pseudo_queries(sample, _QUERIES, _LENGTHS)
    wanted = _best(maxsim_scores(runs, sample), owners)
    agreements = {}
    for name, options in candidates.items():
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
    """Return the scores of documents for runs, which serve as queries. Shape: (runs, documents)."""
    encoder = encoder.with_queries(runs)
    queries = Queries(runs, encoder.transforms.queries(runs))
    standardise = encoder.transforms.standardise
    expected = None if standardise is None else standardise.expected_query
    if expected is not None:
        share = encoder.settings.background
        queries = expected.query_filter(0.0, share, by_evidence=True)(runs, queries.tokens)
    if in_rows:
        return _scores_of_rows(queries, encoder.subspaces(documents))
    vectors = pack_queries(queries)
    return np.asarray((vectors @ encoder.packed(documents).mT).numpy())


def _scores_of_rows(queries: Queries, subspaces: Subspaces) -> NDArray[np.float32]:
    """Return the scores of subspaces by the definition: packed, those of large d need too much."""
    tokens, starts = queries.tokens.tokens, queries.tokens.offsets[:-1]
    scores = np.add.reduceat(subspaces.contributions(tokens).numpy(), starts, axis=1).T
    if queries.background is not None and queries.shares is not None:
        masses = np.add.reduceat(tokens.square().sum(1).numpy(), starts) * queries.shares.numpy()
        scores -= np.outer(masses, subspaces.contributions(queries.background).sum(1))
    return np.asarray(scores)


def _best(scores: NDArray[np.float32], owners: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    scores[np.arange(len(owners)), owners] = -np.inf
    return [top_k(row, _BEST) for row in scores]
