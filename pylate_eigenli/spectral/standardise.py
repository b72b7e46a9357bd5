"""Standardise tokens by the statistics of their collection.

Late-interaction models put most of every token into one direction that all tokens share. A
direction or a bit spent on it tells no document from another. So the mean token of the documents is
subtracted from documents, the mean token of the queries from queries, and both are divided by the
root mean square of the rest: one number for the documents, one for the queries. Tokens keep their
different lengths; a token near the mean says little and counts little.

A constant coordinate is appended to all tokens. Scores are squares, which forget whether a query
token points along a document token or against it; products with the constant keep that sign.

Documents do not depend on the statistics of queries. These can be learnt at any time and only
change the queries that follow. Until then the tokens of the documents stand in for those of
queries, and a query moves their mean towards that of its own tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..tokens import TokenBatch
from .background import Background

CONSTANT = 0.25
"""The appended coordinate, in units of the root mean square length of a standardised token."""

# As if so many documents had the mean zero: a single first document must not set the mean of all.
_PRIOR_DOCUMENTS = 8
# As if a query had so many tokens of the documents' mean: its own few are mostly about its topic.
_PRIOR_TOKENS = 32


@dataclass(frozen=True)
class TokenStatistics:
    """Number, sum and second moment of tokens. Sums of statistics are exact.

    Parameters
    ----------
    count
        Number of tokens.
    total
        Sum of the tokens. Shape: (d,), float64.
    moment
        Sum of their outer products. Shape: (d, d), float64.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> statistics = TokenStatistics.of(collect([[[1.0, 0.0], [3.0, 0.0]]]))
    >>> statistics.mean, statistics.energy(statistics.mean)
    (array([2., 0.]), 1.0)
    """

    count: int
    total: NDArray[np.float64]
    moment: NDArray[np.float64]

    @classmethod
    def of(cls, batch: TokenBatch) -> TokenStatistics:
        """Return the statistics of all tokens of a batch."""
        tokens = batch.tokens.double().cpu().numpy()
        return cls(len(tokens), tokens.sum(0), tokens.T @ tokens)

    def plus(self, other: TokenStatistics) -> TokenStatistics:
        """Return the statistics of both sets of tokens."""
        return TokenStatistics(
            self.count + other.count, self.total + other.total, self.moment + other.moment
        )

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean token. Shape: (d,)."""
        return self.total / max(self.count, 1)

    def moment_about(self, centre: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean outer product of the tokens minus a point. Shape: (d, d)."""
        cross = np.outer(self.mean, centre)
        about: NDArray[np.float64] = (
            self.moment / max(self.count, 1) - cross - cross.T + np.outer(centre, centre)
        )
        return about

    def energy(self, centre: NDArray[np.float64]) -> float:
        """Return the mean squared distance of the tokens from a point."""
        # Rounding can leave a tiny negative number where all tokens are equal.
        return max(float(np.trace(self.moment_about(centre))), 0.0)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the statistics as arrays by name."""
        return {"count": np.array([self.count]), "total": self.total, "moment": self.moment}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], dim: int) -> TokenStatistics:
        """Invert :meth:`to_arrays` for tokens of dimension ``dim``."""
        count = int(arrays["count"][0])
        total, moment = (np.array(arrays[name], np.float64) for name in ("total", "moment"))
        if count < 0 or total.shape != (dim,) or moment.shape != (dim, dim):
            raise ValueError(f"statistics of shapes {total.shape} and {moment.shape}, not of {dim}")
        return cls(count, total, moment)


@dataclass(frozen=True)
class Standardise:
    """Standardises documents and queries. A step of the token transforms of an index.

    Parameters
    ----------
    centre
        The mean document token; None before the first documents. Shape: (d,), float64.
    scale
        The root mean square distance of document tokens from the centre.
    of_documents
        Statistics of the tokens of all documents that were ever added.
    of_queries
        Statistics of query tokens, if any queries are known.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> documents = collect([[[1.0, 0.0], [0.8, 0.6]]] * 100)
    >>> standardise = Standardise().fitted_to(documents)
    >>> standardise.documents(documents).dim
    3
    >>> bool(standardise.documents(documents).tokens[:, :2].mean(0).abs().max() < 0.3)
    True
    """

    centre: NDArray[np.float64] | None = None
    scale: float = 1.0
    of_documents: TokenStatistics | None = None
    of_queries: TokenStatistics | None = None

    def fitted_to(self, documents: TokenBatch) -> Standardise:
        """Return the transform with the mean and the scale of the first documents.

        More documents only add to the statistics that stand in for those of queries.
        """
        statistics = TokenStatistics.of(documents)
        if self.centre is not None:
            known = self.of_documents
            return replace(self, of_documents=None if known is None else known.plus(statistics))
        centre = statistics.mean * (len(documents) / (len(documents) + _PRIOR_DOCUMENTS))
        return replace(
            self, centre=centre, scale=_root(statistics.energy(centre)), of_documents=statistics
        )

    def with_queries(self, queries: TokenBatch) -> Standardise:
        """Return the transform with the statistics of more queries."""
        statistics = TokenStatistics.of(queries)
        known = self.of_queries
        return replace(self, of_queries=statistics if known is None else known.plus(statistics))

    def documents(self, batch: TokenBatch) -> TokenBatch:
        """Return the standardised tokens of documents. Dimension: d + 1."""
        return _standardised(batch, self._centre(batch.dim), self.scale)

    def queries(self, batch: TokenBatch) -> TokenBatch:
        """Return the standardised tokens of queries. Dimension: d + 1."""
        if self.of_queries is not None:
            centre = self.of_queries.mean
            return _standardised(batch, centre, _root(self.of_queries.energy(centre)))
        counts = batch.lengths[:, None]
        sums = counts * batch.means().cpu().numpy() + _PRIOR_TOKENS * self._centre(batch.dim)
        centres = np.repeat(sums / (counts + _PRIOR_TOKENS), batch.lengths, axis=0)
        return _standardised(batch, centres, self.scale)

    def _centre(self, dim: int) -> NDArray[np.float64]:
        return np.zeros(dim) if self.centre is None else self.centre

    @property
    def expected_query(self) -> Background | None:
        """The second moment of standardised query tokens; None before the first documents.

        Its product with a document's matrix is the score that the document has for any query.
        """
        if self.of_queries is not None:
            centre = self.of_queries.mean
            return _expected(self.of_queries, centre, _root(self.of_queries.energy(centre)))
        if self.of_documents is None or self.centre is None:
            return None
        return _expected(self.of_documents, self.centre, self.scale)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the statistics as arrays by name."""
        if self.centre is None:
            return {}
        arrays: dict[str, NDArray[Any]] = {"centre": self.centre, "scale": np.array([self.scale])}
        for name, statistics in (("documents", self.of_documents), ("queries", self.of_queries)):
            if statistics is not None:
                arrays |= {f"{name}.{key}": a for key, a in statistics.to_arrays().items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Standardise:
        """Invert :meth:`to_arrays`."""
        if not arrays:
            return cls()
        centre, scale = np.array(arrays["centre"], np.float64), float(arrays["scale"][0])
        if centre.ndim != 1 or scale <= 0:
            raise ValueError(f"a centre of shape {centre.shape} and a scale of {scale}")
        of_documents, of_queries = (
            TokenStatistics.from_arrays(kept, len(centre)) if kept else None
            for kept in (named(arrays, "documents"), named(arrays, "queries"))
        )
        return cls(centre, scale, of_documents, of_queries)


def named(arrays: Mapping[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names begin with ``name.``, without this prefix."""
    prefix = f"{name}."
    return {k.removeprefix(prefix): array for k, array in arrays.items() if k.startswith(prefix)}


def _expected(statistics: TokenStatistics, centre: NDArray[np.float64], scale: float) -> Background:
    """Return the second moment of standardised tokens, given the statistics of the plain ones."""
    along = CONSTANT * (statistics.mean - centre) / scale
    moment = np.block(
        [
            [statistics.moment_about(centre) / scale**2, along[:, None]],
            [along[None], np.array([[CONSTANT**2]])],
        ]
    )
    return Background(statistics.count * moment, statistics.count)


def _root(energy: float) -> float:
    """Return the root of an energy; 1 where all tokens are equal and there is nothing to scale."""
    return float(np.sqrt(energy)) or 1.0


def _standardised(batch: TokenBatch, centre: NDArray[np.float64], scale: float) -> TokenBatch:
    if centre.shape[-1:] != (batch.dim,):
        raise ValueError(f"a mean token of shape {tuple(centre.shape)} for {batch.dim} dimensions")
    tokens = (batch.tokens - torch.from_numpy(centre).to(batch.tokens)) / scale
    constant = torch.full_like(tokens[:, :1], CONSTANT)
    return TokenBatch(torch.cat([tokens, constant], dim=1), batch.offsets)
