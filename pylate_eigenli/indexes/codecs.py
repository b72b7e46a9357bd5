"""Codecs: from documents to columns and back, one for each kind of index."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from ..spectral.background import Queries, matrix_sum
from ..spectral.subspace import Subspaces
from ..storage import DocumentId
from ..storage.batch import Batch
from ..tokens import TokenBatch, offsets_of
from ..vectors.encoder import SubspaceEncoder, VectorEncoder
from ..vectors.packing import pack_subspaces, packed_dim
from ..vectors.projection import SVProjection, TokenProjection
from ..vectors.quantization import Approximation, StoredVectors
from . import columns
from .agreement import DOCUMENTS, ENOUGH, FEWEST_DOCUMENTS, agreement, pseudo_queries, spread
from .calibration import Calibration, calibrate
from .columns import Part, Rows
from .facts import AGREEMENT
from .settings import Settings, SVSettings

_WIDEST = 1 << 16  # dimensions of a vector; tokens of 361 have that many


@dataclass(frozen=True)
class Codec(ABC):
    """Encodes documents as columns, and decodes these.

    ``fitted`` tells whether it has learnt from the first documents, ``calibration`` how they have
    chosen the settings, if they have. The encoder is centred only if the index keeps vectors.
    """

    labelled: ClassVar[bool]
    settings: Any
    encoder: VectorEncoder
    fitted: bool = False
    calibration: Calibration | None = None

    @classmethod
    def new(
        cls,
        settings: Any,
        tokens: TokenProjection | None = None,
        vectors: SVProjection | None = None,
    ) -> Self:
        """Return the codec of an index without documents, with projections or none."""
        return cls(settings, VectorEncoder(SubspaceEncoder.of(settings, tokens), vectors))

    @classmethod
    def load(cls, settings: Any, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the codec of a collection, given its arrays."""
        return cls(settings, VectorEncoder.from_arrays(arrays, settings), fitted=True)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what was learnt, as arrays by name for the collection."""
        return self.encoder.to_arrays()

    @property
    def subspaces(self) -> SubspaceEncoder:
        """The part of the encoder that makes subspaces."""
        return self.encoder.subspaces

    def dim(self, given: int) -> int:
        """Return the dimension of transformed tokens, for tokens of a given dimension."""
        return self.subspaces.transforms.dim(given)

    def with_queries(self, queries: TokenBatch) -> Self:
        """Return the codec with the statistics of more queries."""
        return self._with(self.subspaces.with_queries(queries))

    def _with(self, subspaces: SubspaceEncoder) -> Self:
        return replace(self, encoder=replace(self.encoder, subspaces=subspaces))

    def _learnt(self, tokens: TokenBatch, in_rows: bool) -> Self:
        """Return the codec, its settings and transforms learnt from the first documents.

        The statistics that stand in for those of queries are learnt from all documents.
        """
        if self.fitted:
            return self._with(self.subspaces.fitted_to(tokens))
        codec = self
        if self.settings.auto:
            projection = self.encoder.projection
            width = None if projection is None else len(projection.mean)
            calibration = calibrate(self.subspaces, tokens, in_rows, width)
            settings = replace(self.settings, **calibration.settings)
            codec = self._with(self.subspaces.with_settings(settings))
            codec = replace(codec, settings=settings, calibration=calibration)
        return codec._with(codec.subspaces.fitted_to(tokens))

    @abstractmethod
    def width(self, dim: int) -> int:
        """Return the dimension D of single vectors, for tokens of dimension ``dim``."""

    @abstractmethod
    def no_documents(self, dim: int) -> Batch:
        """Return the columns of no documents; raise an error if the codec does not fit ``dim``."""

    @abstractmethod
    def encode(self, ids: Sequence[DocumentId], tokens: TokenBatch) -> tuple[Self, Batch]:
        """Return the codec, fitted to the documents if it was not yet, and their columns."""

    @abstractmethod
    def vectors(self, rows: Rows, documents: NDArray[np.int64]) -> Tensor:
        """Return the single vectors of documents. Shape: (n, D), float32."""

    @abstractmethod
    def matrix_sum(self, rows: Rows, documents: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the sum of the matrices of stored documents. Shape: (d, d)."""


@dataclass(frozen=True)
class SubspaceCodec(Codec):
    """Documents as subspaces."""

    labelled: ClassVar[bool] = False
    settings: Settings

    def width(self, dim: int) -> int:
        return packed_dim(self.dim(dim))

    def no_documents(self, dim: int) -> Batch:
        subspaces = self.subspaces.subspaces(_no_tokens(dim))
        return columns.of_subspaces([], subspaces, self.settings.dtype)

    def encode(self, ids: Sequence[DocumentId], tokens: TokenBatch) -> tuple[Self, Batch]:
        codec = replace(self._learnt(tokens, in_rows=True), fitted=True)
        subspaces = codec.subspaces.subspaces(tokens)
        return codec, columns.of_subspaces(ids, subspaces, self.settings.dtype)

    def vectors(self, rows: Rows, documents: NDArray[np.int64]) -> Tensor:
        bases, offsets = _bases(rows, documents)
        return pack_subspaces(bases, offsets, columns.floors(rows)[documents])

    def matrix_sum(self, rows: Rows, documents: NDArray[np.int64]) -> NDArray[np.float64]:
        bases, offsets = _bases(rows, documents)
        return matrix_sum(bases, np.diff(offsets), columns.floors(rows)[documents])


def _no_tokens(dim: int) -> TokenBatch:
    return TokenBatch(torch.empty(0, dim), np.zeros(1, np.int64))


def _bases(rows: Rows, documents: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.int64]]:
    """Return the directions of documents, one after the other, and their offsets."""
    bases = columns.bases(rows).decode_items(rows.offsets, documents)
    return torch.from_numpy(np.concatenate(bases)), offsets_of([len(basis) for basis in bases])


@dataclass(frozen=True)
class VectorCodec(Codec):
    """Documents as single vectors, with tokens or bases beside them if these are to be kept."""

    labelled: ClassVar[bool] = True
    settings: SVSettings
    agreement: float | None = None

    @classmethod
    def load(cls, settings: SVSettings, arrays: Mapping[str, NDArray[Any]]) -> Self:
        agreed = float(arrays[AGREEMENT][0]) if AGREEMENT in arrays else None
        return replace(super().load(settings, arrays), agreement=agreed)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        agreed = {} if self.agreement is None else {AGREEMENT: np.array([self.agreement])}
        return super().to_arrays() | agreed

    def width(self, dim: int) -> int:
        return self.encoder.width

    def no_documents(self, dim: int) -> Batch:
        self.encoder.check(self.dim(dim))
        tokens = _no_tokens(dim)
        subspaces = self.subspaces.subspaces(tokens) if self.settings.keep_bases else None
        vectors = self.encoder.vectors(self.subspaces.packed(tokens, subspaces))
        return columns.with_labels(self.columns([], tokens, subspaces, vectors), 0)

    def encode(self, ids: Sequence[DocumentId], tokens: TokenBatch) -> tuple[Self, Batch]:
        if not self.fitted:
            self.check_width(tokens.dim)
        codec = self._learnt(tokens, in_rows=self.settings.keep_bases)
        subspaces = codec.subspaces.subspaces(tokens) if self.settings.keep_bases else None
        packed = codec.subspaces.packed(tokens, subspaces)
        if not self.fitted:
            codec = replace(codec, encoder=codec.encoder.centred_on(packed, tokens), fitted=True)
        vectors = codec.encoder.vectors(packed)
        documents = codec.columns(ids, tokens, subspaces, vectors)
        return (codec if self.fitted else codec.measured(tokens, vectors, documents)), documents

    def columns(
        self,
        ids: Sequence[DocumentId],
        tokens: TokenBatch | None,
        subspaces: Subspaces | None,
        vectors: Tensor,
    ) -> Batch:
        """Return documents with their vectors (n, width) and with what is kept beside them."""
        if self.settings.keep_tokens != "none":
            assert tokens is not None
            kept = columns.of_tokens(ids, tokens, self.settings.keep_tokens)
        elif self.settings.keep_bases:
            assert subspaces is not None
            kept = columns.of_subspaces(ids, subspaces, "float16")
        else:
            kept = columns.of_nothing(ids)
        return self.with_vectors(kept, vectors)

    def check_width(self, dim: int) -> None:
        """Refuse tokens of too many dimensions, or of others than a projection was fitted to."""
        settings, projection = self.settings, self.encoder.projection
        width = packed_dim(self.dim(dim))
        if projection is not None:
            # Standardised tokens have one dimension more.
            possible = [width, packed_dim(self.dim(dim) + 1)] if settings.auto else [width]
            if len(projection.mean) not in possible:
                raise ValueError(
                    f"the projection was fitted to vectors of {len(projection.mean):,} dimensions, "
                    f"and tokens of {dim} make {' or '.join(f'{n:,}' for n in possible)}: fit it to "
                    "the vectors() of an EigenLIIndex with the same preset"
                )
        elif width > _WIDEST and not settings.in_database:
            raise ValueError(
                f"tokens of {dim} dimensions make vectors of {width:,}: use EigenLIIndex, or shorten "
                "the tokens with EigenLISVIndex(..., token_projection="
                "TokenProjection.fit(documents_embeddings, dim=128))"
            )

    def measured(self, tokens: TokenBatch, vectors: Tensor, documents: Rows) -> Self:
        """Return the codec with the agreement of its codes, unless there are too few documents."""
        if not columns.has_codes(documents) or len(vectors) < FEWEST_DOCUMENTS:
            return self
        runs, owners = pseudo_queries(tokens)
        plain = Queries(runs, self.subspaces.transforms.queries(runs))
        queries = torch.from_numpy(self.encoder.encode_queries(plain).vectors)
        chosen = np.union1d(spread(len(vectors), DOCUMENTS), owners)
        stored = self.stored((documents, chosen))
        coded = torch.from_numpy(self.approximate_scores(stored, queries).scores)
        agreed = agreement(queries @ vectors[chosen].mT, coded, np.searchsorted(chosen, owners))
        if agreed < ENOUGH:
            warnings.warn(
                f"codes of dtype={self.settings.dtype!r} keep a correlation of {agreed:.2f} with the "
                "exact scores of these documents: the index will find others. Use a dtype of more "
                "bits, or standardise the tokens",
                stacklevel=2,
            )
        return replace(self, agreement=agreed)

    def with_vectors(self, documents: Batch, vectors: Tensor) -> Batch:
        """Return documents with vectors (n, width) as the index stores them."""
        return columns.with_vectors(documents, self.encoder.stored(vectors, self.settings.dtype))

    def stored(self, *parts: Part) -> StoredVectors:
        """Return the vectors that the index searches, as they are stored, of at least one part."""
        return columns.vectors(parts, self.settings.dtype, self.encoder.width)

    def read(self, rows: Rows, chosen: NDArray[np.int64]) -> Tensor:
        """Return the vectors that the index searches, centred or projected. Shape: (n, width)."""
        return self.stored((rows, chosen)).decode(self.encoder.axis, self.encoder.mean_row)

    def scores(self, stored: StoredVectors, queries: Tensor) -> NDArray[np.float32]:
        """Return the inner products of queries (m, width) with vectors. Shape: (m, n)."""
        return stored.scores(queries, self.encoder.axis, self.encoder.mean_row)

    def approximate_scores(self, stored: StoredVectors, queries: Tensor) -> Approximation:
        """Return what :meth:`scores` returns, faster, and how far it may be off."""
        return stored.approximate_scores(queries, self.encoder.axis, self.encoder.mean_row)

    def vectors(self, rows: Rows, documents: NDArray[np.int64]) -> Tensor:
        return self.encoder.uncentred(self.read(rows, documents))

    def matrix_sum(self, rows: Rows, documents: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.encoder.matrix_sum(self.read(rows, documents))
