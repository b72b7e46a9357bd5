"""Spectral filters: the weights of a document's directions.

The paper keeps the first k eigenvectors with equal weights. A spectral filter computes weights f_j
from the eigenvalues: the document's matrix becomes F = sum_j f_j w_j w_j', and its score
sum_ij f_j <q_i, w_j>^2. All directions outside the kept ones share one weight, the *rest* of the
filter, which is stored as the floor, one number per document
(see :mod:`pylate_eigenli.spectral.subspace`).

A new filter is a class with the three methods of :class:`SpectralFilter` and an entry in
``_FILTERS``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..tokens import TokenBatch

Weights: TypeAlias = NDArray[np.float64]

_NO_ENERGY = 1e-12  # in place of zero, for a document whose tokens all equal the mean


@dataclass(frozen=True)
class Spectra:
    """The leading eigenvalues (n, k) of documents, descending, undefined beyond their ranks (n,).

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> tokens = collect([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    >>> Spectra(torch.tensor([[2.0, 1.0]]), np.array([2]), tokens).shares.round(2).tolist()
    [[0.67, 0.33]]
    """

    eigenvalues: Tensor
    ranks: NDArray[np.int64]
    tokens: TokenBatch

    def __len__(self) -> int:
        return self.eigenvalues.shape[0]

    @property
    def k(self) -> int:
        """Maximal number of directions per document."""
        return self.eigenvalues.shape[1]

    @property
    def dim(self) -> int:
        """Dimension d of the tokens."""
        return self.tokens.dim

    @cached_property
    def shares(self) -> Weights:
        """Eigenvalues divided by the trace, zero beyond the rank. Shape: (n, k), float64."""
        traces = self.tokens.energies()
        values = self.eigenvalues.double().cpu().numpy()
        within = np.arange(self.k) < self.ranks[:, None]
        # An item of equal tokens has no energy and no direction after centering.
        return np.where(within, values, 0) / np.where(traces > 0, traces, 1)[:, None]


@runtime_checkable
class SpectralFilter(Protocol):
    """Computes weights from eigenvalues. :func:`as_filter` parses ``str(filter)``.

    Examples
    --------
    >>> isinstance(as_filter("soft(0.1)"), SpectralFilter)
    True
    """

    def kept(self, spectra: Spectra) -> NDArray[np.int64]:
        """Return the number of directions to keep, at most the rank. Shape: (n,)."""

    def weights(self, spectra: Spectra) -> Weights:
        """Return the weights of the directions, in (0, 1]. Shape: (n, k)."""

    def rest(self, spectra: Spectra, kept: NDArray[np.int64]) -> Weights:
        """Return the weight of each of the d - kept other directions. Shape: (n,)."""


@dataclass(frozen=True)
class Hard:
    """The filter of the paper: the first k directions have the weight 1.

    For a document of rank r < k the rest is the expectation over all ways to complete its subspace
    to k directions: (k - r) / (d - r) for each of the d - r other directions.

    Examples
    --------
    >>> from pylate_eigenli import compress
    >>> document = [[1.0, 0.0, 0.0], [0.8, 0.6, 0.0]]
    >>> compress([document], k=2, filter=Hard()).weights.tolist()
    [1.0, 1.0]
    """

    def __str__(self) -> str:
        return "hard"

    def kept(self, spectra: Spectra) -> NDArray[np.int64]:
        return spectra.ranks

    def weights(self, spectra: Spectra) -> Weights:
        return np.ones((len(spectra), spectra.k))

    def rest(self, spectra: Spectra, kept: NDArray[np.int64]) -> Weights:
        # At full rank the numerator is zero, and the denominator must not be.
        return np.asarray((spectra.k - kept) / np.maximum(spectra.dim - kept, 1))


class Saturating(ABC):
    """A direction with the share x of the energy gets the weight x / (x + threshold).

    The other directions share the remaining energy equally and get the weight of their part. If
    all directions are kept, the document's matrix is M (M + t I)^-1, where t is the threshold times
    the trace of the moment M (see :mod:`pylate_eigenli.vectors.soft`).

    Examples
    --------
    >>> isinstance(as_filter("soft"), Saturating), isinstance(as_filter("hard"), Saturating)
    (True, False)
    """

    @abstractmethod
    def thresholds(self, documents: TokenBatch) -> Weights:
        """Return the share of the energy that gets the weight 1/2, per document. Shape: (n,)."""

    def kept(self, spectra: Spectra) -> NDArray[np.int64]:
        return spectra.ranks

    def weights(self, spectra: Spectra) -> Weights:
        thresholds = self.thresholds(spectra.tokens)[:, None]
        return np.asarray(spectra.shares / (spectra.shares + thresholds))

    def rest(self, spectra: Spectra, kept: NDArray[np.int64]) -> Weights:
        left = 1 - spectra.shares.sum(1)
        # A smaller remainder is a rounding error.
        noise = spectra.dim * torch.finfo(spectra.tokens.tokens.dtype).eps
        left = np.where(left > noise, left, 0)
        each = left / np.maximum(spectra.dim - kept, 1)
        return np.asarray(each / (each + self.thresholds(spectra.tokens)))


@dataclass(frozen=True)
class Soft(Saturating):
    """Weights directions by their share of the document's energy.

    Parameters
    ----------
    tau
        The share that gets the weight 1/2. By default 1 / d, the share in an even spectrum.

    Examples
    --------
    >>> from pylate_eigenli import compress
    >>> document = [[1.0, 0.0, 0.0], [0.8, 0.6, 0.0]]
    >>> [round(weight, 2) for weight in compress([document], k=2, filter=Soft()).weights.tolist()]
    [0.73, 0.23]
    >>> str(Soft(0.1))
    'soft(0.1)'
    """

    tau: float | None = None

    def __post_init__(self) -> None:
        if self.tau is not None and not 0 < self.tau < np.inf:
            raise ValueError(f"tau must be positive, got {self.tau!r}")

    def __str__(self) -> str:
        return "soft" if self.tau is None else f"soft({self.tau!r})"

    def thresholds(self, documents: TokenBatch) -> Weights:
        return np.full(len(documents), 1 / documents.dim if self.tau is None else self.tau)


@dataclass(frozen=True)
class Ridge(Saturating):
    """Weights directions by their energy in tokens: the energy of n tokens gets n / (n + t).

    The energy of a token is its squared length: 1 for unit vectors, and 1 on average if tokens are
    standardised. In a short document every token has a large share of the energy, so :class:`Soft`
    weights it too high. The energy itself depends neither on the length of the document nor on d.

    Parameters
    ----------
    tokens
        The number t of tokens whose energy gets the weight 1/2.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> Ridge().thresholds(collect([np.eye(2, 8), np.eye(5, 8)]))
    array([0.5, 0.2])
    """

    tokens: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.tokens < np.inf:
            raise ValueError(f"the number of tokens must be positive, got {self.tokens!r}")

    def __str__(self) -> str:
        return "ridge" if self.tokens == 1 else f"ridge({self.tokens!r})"

    def thresholds(self, documents: TokenBatch) -> Weights:
        return np.asarray(self.tokens / np.maximum(documents.energies(), _NO_ENERGY))


@dataclass(frozen=True)
class Energy(Hard):
    """Keeps the fewest directions that hold a share of the energy, at most k, with weight 1.

    Parameters
    ----------
    share
        The share of the energy, in (0, 1].

    Examples
    --------
    >>> from pylate_eigenli import compress
    >>> document = [[1.0, 0.0, 0.0], [0.8, 0.6, 0.0]]
    >>> compress([document], k=2, filter=Energy(0.8)).ranks.tolist()
    [1]
    """

    share: float = 0.9

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"the share of the energy must be in (0, 1], got {self.share!r}")

    def __str__(self) -> str:
        return f"energy({self.share!r})"

    def kept(self, spectra: Spectra) -> NDArray[np.int64]:
        short = np.cumsum(spectra.shares, axis=1) < self.share
        return np.asarray(np.minimum(short.sum(1) + 1, spectra.ranks))


def as_filter(choice: str | SpectralFilter) -> SpectralFilter:
    """Parse a filter: ``hard``, ``soft``, ``soft(0.01)``, ``ridge``, ``ridge(2)``, ``energy(0.9)``.

    Examples
    --------
    >>> as_filter("soft(0.01)")
    Soft(tau=0.01)
    >>> str(as_filter("energy"))
    'energy(0.9)'
    """
    if not isinstance(choice, str):
        if isinstance(choice, SpectralFilter):
            return choice
        raise TypeError(f"filter must be a name or a spectral filter, not {choice!r}")
    match = re.fullmatch(rf"({'|'.join(_FILTERS)})(?:\(([-+.\w]+)\))?", choice)
    try:
        number = float(match[2]) if match and match[2] else None
    except ValueError:
        match = None
    if match is None or (match[1] == "hard" and match[2]):
        raise ValueError(
            "filter must be hard, soft, soft(<tau>), ridge, ridge(<tokens>) or energy(<share>), "
            f"got {choice!r}"
        )
    make = _FILTERS[match[1]]
    return make() if number is None else make(number)


_FILTERS: dict[str, Callable[..., SpectralFilter]] = {
    "hard": Hard,
    "soft": Soft,
    "ridge": Ridge,
    "energy": Energy,
}
