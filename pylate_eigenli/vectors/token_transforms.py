"""What tokens go through before anything spectral is made of them.

A projection, centring and standardisation, in this order. Documents and queries may be treated
differently. What is learnt from the first documents of a collection is stored with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..spectral.settings import SpectralSettings
from ..spectral.standardise import Standardise, named
from ..tokens import TokenBatch
from .projection import TokenProjection

_PROJECTION, _STANDARDISE = "projection.tokens", "standardise"  # begin the names of their arrays


@dataclass(frozen=True)
class TokenTransforms:
    """The transforms of the tokens of a collection.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> centring = TokenTransforms.of(SpectralSettings(centering="both"))
    >>> centring.queries(collect([[[3.0, 0.0], [1.0, 0.0]]])).tokens
    tensor([[ 1.,  0.],
            [-1.,  0.]])
    """

    settings: SpectralSettings
    projection: TokenProjection | None = None
    standardise: Standardise | None = None

    @classmethod
    def of(
        cls, settings: SpectralSettings, projection: TokenProjection | None = None
    ) -> TokenTransforms:
        """Return the transforms of a collection without documents."""
        return cls(settings, projection, Standardise() if settings.standardise else None)

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], settings: SpectralSettings
    ) -> TokenTransforms:
        """Return what :meth:`to_arrays` has made arrays of; others among them are ignored."""
        kept = named(arrays, _PROJECTION)
        return cls(
            settings,
            TokenProjection.from_arrays(kept) if kept else None,
            Standardise.from_arrays(named(arrays, _STANDARDISE)) if settings.standardise else None,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what has been learnt as arrays by name."""
        steps = {_PROJECTION: self.projection, _STANDARDISE: self.standardise}
        return {
            f"{name}.{key}": array
            for name, step in steps.items()
            if step is not None
            for key, array in step.to_arrays().items()
        }

    def fitted_to(self, documents: TokenBatch) -> TokenTransforms:
        """Return the transforms, learnt from the first documents."""
        if self.standardise is None:
            return self
        centred = self.settings.centred(self._projected(documents))
        return replace(self, standardise=self.standardise.fitted_to(centred))

    def with_queries(self, queries: TokenBatch) -> TokenTransforms:
        """Return the transforms with the statistics of more queries, as they were given."""
        if self.standardise is None:
            return self
        centred = self.settings.centred_queries(self._projected(queries))
        return replace(self, standardise=self.standardise.with_queries(centred))

    def documents(self, batch: TokenBatch) -> TokenBatch:
        """Return the tokens that subspaces are made of."""
        centred = self.settings.centred(self._projected(batch))
        return centred if self.standardise is None else self.standardise.documents(centred)

    def queries(self, batch: TokenBatch) -> TokenBatch:
        """Return the tokens that are compared with subspaces."""
        centred = self.settings.centred_queries(self._projected(batch))
        return centred if self.standardise is None else self.standardise.queries(centred)

    def _projected(self, batch: TokenBatch) -> TokenBatch:
        return batch if self.projection is None else self.projection.projected(batch)

    def dim(self, given: int) -> int:
        """Return the dimension of transformed tokens, for tokens of a given dimension."""
        token = TokenBatch(torch.zeros(1, given), np.array([0, 1]))
        centre = None if self.standardise is None else self.standardise.centre
        if centre is not None and len(centre) != self._projected(token).dim:
            raise ValueError(f"the centre of tokens has {len(centre)} dimensions, not {given}")
        return self.documents(token).dim
