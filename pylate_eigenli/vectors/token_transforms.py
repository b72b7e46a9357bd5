"""What tokens go through before anything spectral is made of them.

A transform may treat documents and queries differently, may change the dimension of the tokens, and
may be learnt from the first documents of a collection, with which it is then stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import Self

from ..spectral.settings import SpectralSettings
from ..spectral.standardise import Standardise, named
from ..tokens import TokenBatch
from .projection import TokenProjection

_PROJECTION, _STANDARDISE = "projection.tokens", "standardise"  # begin the names of their arrays


class TokenTransform(Protocol):
    """One step. Whatever it has learnt is in its arrays."""

    def fitted_to(self, documents: TokenBatch) -> Self:
        """Return the transform, learnt from the first documents unless it has been before."""

    def documents(self, batch: TokenBatch) -> TokenBatch:
        """Return the tokens of documents, transformed."""

    def queries(self, batch: TokenBatch) -> TokenBatch:
        """Return the tokens of queries, transformed."""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what has been learnt as arrays by name."""


@dataclass(frozen=True)
class Centering:
    """Subtracts the mean of the corpus, and of each item, as the settings say."""

    settings: SpectralSettings

    def fitted_to(self, documents: TokenBatch) -> Self:
        return self

    def documents(self, batch: TokenBatch) -> TokenBatch:
        return self.settings.centred(batch)

    def queries(self, batch: TokenBatch) -> TokenBatch:
        return self.settings.centred_queries(batch)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {}


@dataclass(frozen=True)
class TokenTransforms:
    """The transforms of a collection, by the names of their arrays, in the order of application.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> centring = TokenTransforms.of(SpectralSettings(centering="both"))
    >>> centring.queries(collect([[[3.0, 0.0], [1.0, 0.0]]])).tokens
    tensor([[ 1.,  0.],
            [-1.,  0.]])
    """

    steps: Mapping[str, TokenTransform]

    @classmethod
    def of(
        cls,
        settings: SpectralSettings,
        projection: TokenProjection | None = None,
        standardise: Standardise | None = None,
    ) -> TokenTransforms:
        """Return the transforms of a collection, not fitted yet unless they are given."""
        steps: dict[str, TokenTransform] = {}
        if projection is not None:
            steps[_PROJECTION] = projection
        steps["centering"] = Centering(settings)
        if settings.standardise:
            steps[_STANDARDISE] = standardise or Standardise()
        return cls(steps)

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], settings: SpectralSettings
    ) -> TokenTransforms:
        """Return what :meth:`to_arrays` has made arrays of; others among them are ignored."""
        kept = named(arrays, _PROJECTION)
        return cls.of(
            settings,
            TokenProjection.from_arrays(kept) if kept else None,
            Standardise.from_arrays(named(arrays, _STANDARDISE)),
        )

    @property
    def projection(self) -> TokenProjection | None:
        """The projection of the tokens, if there is one."""
        step = self.steps.get(_PROJECTION)
        return step if isinstance(step, TokenProjection) else None

    @property
    def standardise(self) -> Standardise | None:
        """The standardisation of the tokens, if there is one."""
        step = self.steps.get(_STANDARDISE)
        return step if isinstance(step, Standardise) else None

    def with_queries(self, queries: TokenBatch) -> TokenTransforms:
        """Return the transforms with the statistics of more queries, as they were given."""
        steps = dict(self.steps)
        for name, step in steps.items():
            if isinstance(step, Standardise):
                steps[name] = step.with_queries(queries)
            else:
                queries = step.queries(queries)
        return TokenTransforms(steps)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what has been learnt as arrays by name."""
        return {
            f"{name}.{key}": array
            for name, step in self.steps.items()
            for key, array in step.to_arrays().items()
        }

    def fitted_to(self, documents: TokenBatch) -> TokenTransforms:
        """Return the transforms, each learnt from the first documents as it gets them."""
        fitted = {}
        for name, step in self.steps.items():
            fitted[name] = step.fitted_to(documents)
            documents = fitted[name].documents(documents)
        return TokenTransforms(fitted)

    def dim(self, given: int) -> int:
        """Return the dimension of transformed tokens, for tokens of a given dimension."""
        return self.documents(TokenBatch(torch.zeros(1, given), np.array([0, 1]))).dim

    def documents(self, batch: TokenBatch) -> TokenBatch:
        """Return the tokens that subspaces are made of."""
        for step in self.steps.values():
            batch = step.documents(batch)
        return batch

    def queries(self, batch: TokenBatch) -> TokenBatch:
        """Return the tokens that are compared with subspaces."""
        for step in self.steps.values():
            batch = step.queries(batch)
        return batch
