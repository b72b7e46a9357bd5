"""From tokens to subspaces, and from subspaces to single vectors: what both indexes encode with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..spectral.background import Queries
from ..spectral.filters import Saturating, as_filter
from ..spectral.settings import SpectralSettings
from ..spectral.standardise import named
from ..spectral.subspace import Subspaces, subspaces_of
from ..tokens import TokenBatch
from .mean_row import MeanRow
from .packing import pack_queries, pack_subspaces, packed_dim, unpack, unpacked_dim
from .projection import SVProjection, TokenProjection
from .quantization import StoredVectors, VectorDtype
from .soft import soft_vectors
from .token_transforms import TokenTransforms

_PROJECTION, _CENTRE, _AXIS = "projection.vectors", "centre", "axis"
_MEAN_TOKEN = "mean_token"
_NO_MEAN = 1e-3  # the length of a mean token that says nothing, of the length of a token
_ISOTROPIC_DOCUMENTS = 32  # that the centre is an average of, besides those of the first batch


class QueryVectors(NamedTuple):
    """Queries as vectors (queries, D): a score is an inner product plus the constant of the query.

    Rankings do not depend on the constants (queries,).
    """

    vectors: NDArray[np.float32]
    constants: NDArray[np.float32]


@dataclass(frozen=True)
class SubspaceEncoder:
    """Makes subspaces of documents, and of queries the tokens to compare with them.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> SubspaceEncoder.of(SpectralSettings(k=1)).subspaces(collect([[[1.0, 0.0]]])).rows
    tensor([[1., 0.]])
    """

    settings: SpectralSettings
    transforms: TokenTransforms

    @classmethod
    def of(
        cls, settings: SpectralSettings, projection: TokenProjection | None = None
    ) -> SubspaceEncoder:
        """Return the encoder of a new collection, with a projection of its tokens or none."""
        return cls(settings, TokenTransforms.of(settings, projection))

    def fitted_to(self, documents: TokenBatch) -> SubspaceEncoder:
        """Return the encoder, its transforms learnt from the first documents."""
        return replace(self, transforms=self.transforms.fitted_to(documents))

    def with_settings(self, settings: SpectralSettings) -> SubspaceEncoder:
        """Return an encoder of other settings with the same projection, not fitted otherwise."""
        return SubspaceEncoder.of(settings, self.transforms.projection)

    def with_queries(self, queries: TokenBatch) -> SubspaceEncoder:
        """Return the encoder with the statistics of more queries."""
        return replace(self, transforms=self.transforms.with_queries(queries))

    def subspaces(self, documents: TokenBatch) -> Subspaces:
        """Return the subspaces of documents."""
        settings = self.settings
        return subspaces_of(
            self.transforms.documents(documents),
            settings.k,
            settings.short_documents,
            as_filter(settings.filter),
        )

    def packed(self, documents: TokenBatch, subspaces: Subspaces | None = None) -> Tensor:
        """Return the kernel vectors of documents. Shape: (n, D).

        A soft filter needs no subspaces for that, unless they are given, and then stand for the
        documents.
        """
        chosen = as_filter(self.settings.filter)
        if subspaces is None and isinstance(chosen, Saturating):
            tokens = self.transforms.documents(documents)
            return soft_vectors(tokens, chosen.thresholds(tokens))
        subspaces = subspaces or self.subspaces(documents)
        floors = subspaces.floors.float().cpu().numpy()
        return pack_subspaces(subspaces.rows.float().cpu(), subspaces.offsets, floors)


@dataclass(frozen=True)
class VectorEncoder:
    """Makes one vector of each document and each query.

    Parameters
    ----------
    subspaces
        Makes the subspaces that the vectors pack.
    projection
        Makes the vectors shorter, if there is one.
    centre
        What is subtracted from vectors that are not projected, near the mean of all of them: few
        bits are best spent on what documents do not have in common. Shape: (D,), float32.
    axis
        The direction of that mean, see :mod:`pylate_eigenli.vectors.quantization`; of what it has
        outside the mean row, if there is one. Shape: (D,), float32.
    mean_row
        The row of the mean token, in vectors that are not projected.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> documents = collect([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> encoder = VectorEncoder(SubspaceEncoder.of(SpectralSettings(k=1)))
    >>> encoder = encoder.centred_on(encoder.subspaces.packed(documents))
    >>> vectors = encoder.vectors(encoder.subspaces.packed(documents))
    >>> query = collect([[[0.6, 0.8]]], names="query")
    >>> found = encoder.encode_queries(Queries(query, query))
    >>> (found.vectors @ vectors.numpy().T + found.constants[:, None]).round(2)
    array([[0.36, 0.64]], dtype=float32)
    """

    subspaces: SubspaceEncoder
    projection: SVProjection | None = None
    centre: Tensor | None = field(default=None, repr=False)
    axis: Tensor | None = field(default=None, repr=False)
    mean_row: MeanRow | None = field(default=None, repr=False)

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], settings: SpectralSettings
    ) -> VectorEncoder:
        """Return what :meth:`to_arrays` has made arrays of; others among them are ignored."""
        kept = named(arrays, _PROJECTION)
        centre, axis, token = (arrays.get(name) for name in (_CENTRE, _AXIS, _MEAN_TOKEN))
        return cls(
            SubspaceEncoder(settings, TokenTransforms.from_arrays(arrays, settings)),
            SVProjection.from_arrays(kept) if kept else None,
            None if centre is None else torch.tensor(centre, dtype=torch.float32),
            None if axis is None else torch.tensor(axis, dtype=torch.float32),
            None if token is None else MeanRow(torch.tensor(token, dtype=torch.float32)),
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what a collection has to keep, as arrays by name."""
        arrays = self.subspaces.transforms.to_arrays()
        if self.projection is not None:
            kept = self.projection.to_arrays()
            arrays |= {f"{_PROJECTION}.{name}": array for name, array in kept.items()}
        vectors = {_CENTRE: self.centre, _AXIS: self.axis}
        if self.mean_row is not None:
            vectors[_MEAN_TOKEN] = self.mean_row.direction
        return arrays | {name: v.numpy() for name, v in vectors.items() if v is not None}

    def check(self, dim: int) -> None:
        """Raise an error if the arrays do not fit transformed tokens of a dimension.

        Compiled code reads them without asking for their lengths.
        """
        lengths = [("centre", self.centre, packed_dim(dim)), ("axis", self.axis, self.width)]
        if self.mean_row is not None:
            lengths.append(("mean token", self.mean_row.direction, dim))
        if self.projection is not None:
            lengths.append(("mean of the projection", self.projection.mean, packed_dim(dim)))
        for name, array, length in lengths:
            if array is not None and array.shape != (length,):
                raise ValueError(f"the {name} has shape {tuple(array.shape)}, not ({length},)")

    @property
    def width(self) -> int:
        """Dimension of the vectors."""
        if self.projection is not None:
            return self.projection.dim
        return len(self._centre)

    @property
    def _centre(self) -> Tensor:
        if self.centre is None:
            raise ValueError("the encoder has seen no documents yet: see centred_on")
        return self.centre

    def centred_on(self, packed: Tensor, tokens: TokenBatch | None = None) -> VectorEncoder:
        """Return the encoder with centre and axis chosen for kernel vectors like those given (n, D).

        The mean token is that of the documents' tokens. If they are not given, the direction that
        the documents have most of stands in for it. The average k-dimensional subspace, (k / d) I, counts as some of them, so that a first
        batch of few documents does no harm.
        """
        if self.projection is not None:
            mean = self.projection.directions @ self.projection.mean
            return replace(self, axis=torch.nn.functional.normalize(mean, dim=0))
        isotropic = _isotropic(self.subspaces.settings.k, unpacked_dim(packed.shape[1]))
        total = packed.sum(0, dtype=torch.float64) + _ISOTROPIC_DOCUMENTS * isotropic
        centre = (total / (len(packed) + _ISOTROPIC_DOCUMENTS)).float()
        mean_row = MeanRow(self._mean_direction(centre, tokens))
        outside = centre[None].clone()
        mean_row.add(outside, mean_row.coordinates(outside), -1)
        axis = torch.nn.functional.normalize(outside[0], dim=0)
        return replace(self, centre=centre, axis=axis, mean_row=mean_row)

    def _mean_direction(self, centre: Tensor, tokens: TokenBatch | None) -> Tensor:
        if tokens is not None:
            transformed = self.subspaces.transforms.documents(tokens).tokens.double().cpu()
            mean = transformed.mean(0)
            # Rounding leaves a little of tokens that were centred.
            if mean.norm() > _NO_MEAN * transformed.norm(dim=1).mean():
                return torch.nn.functional.normalize(mean, dim=0).float()
        directions: Tensor = torch.linalg.eigh(unpack(centre[None])[0].double())[1]
        return directions[:, -1].float()

    def vectors(self, packed: Tensor) -> Tensor:
        """Return the vectors to store of kernel vectors (n, D), which are overwritten."""
        if self.projection is not None:
            return self.projection.transform_documents(packed)
        return packed.sub_(self._centre)

    def stored(self, vectors: Tensor, dtype: VectorDtype) -> StoredVectors:
        """Return vectors (n, width) at the precision of a dtype."""
        return StoredVectors.encode(vectors, dtype, self.axis, self.mean_row)

    def uncentred(self, vectors: Tensor) -> Tensor:
        """Return vectors as kernel vectors again, in place; projected ones stay as they are."""
        return vectors if self.projection is not None else vectors.add_(self._centre)

    def encode_queries(self, queries: Queries) -> QueryVectors:
        """Return the vectors of queries, and what to add to all scores of each."""
        packed = pack_queries(queries)
        if self.projection is not None:
            projected = self.projection.transform_queries(packed)
            return QueryVectors(projected.numpy(), self.projection.constants(packed).numpy())
        # In float64, so that the other queries of a batch do not change the last bits of float32.
        constants = (packed.double() @ self._centre.double()).float()
        return QueryVectors(packed.numpy(), constants.numpy())

    def matrix_sum(self, vectors: Tensor) -> NDArray[np.float64]:
        """Return the sum of the documents' matrices, as far as their vectors tell. Shape: (d, d)."""
        total = vectors.sum(0, dtype=torch.float64)
        if self.projection is not None:
            packed = self.projection.restore(total) + len(vectors) * self.projection.mean.double()
        else:
            packed = total + len(vectors) * self._centre.double()
        matrix: NDArray[np.float64] = unpack(packed[None])[0].numpy()
        return matrix


def _isotropic(k: int, d: int) -> Tensor:
    """Return the kernel vector of the average k-dimensional subspace. Shape: (D,), float64."""
    packed = torch.zeros(packed_dim(d), dtype=torch.float64)
    packed[:d] = k / d
    return packed
