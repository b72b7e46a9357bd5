"""What a kind of index makes of documents, and how it reads them back."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

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
from ..vectors.encoder import QueryVectors, SubspaceEncoder, VectorEncoder
from ..vectors.packing import pack_queries, pack_subspaces, packed_dim
from . import columns
from .agreement import ENOUGH, FEWEST_DOCUMENTS, agreement, pseudo_queries, sample_documents
from .calibration import Calibration, calibrate
from .columns import Rows
from .settings import Settings, SVSettings

_AGREEMENT = "codes.agreement"
_WIDEST = 1 << 16  # dimensions of a vector; tokens of 361 have that many


class Codec(Protocol):
    """Documents as columns. What it has learnt from the first ones is kept in the collection."""

    labelled: ClassVar[bool]

    @property
    def settings(self) -> Any:
        """What the index is made with."""

    @property
    def calibration(self) -> Calibration | None:
        """How the first documents chose the settings; None if they did not."""

    @property
    def subspaces(self) -> SubspaceEncoder:
        """Makes subspaces of documents, and of queries the tokens to compare with them."""

    @property
    def encoder(self) -> VectorEncoder:
        """Makes single vectors; not centred on any documents if the index does not keep them."""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what the collection has to keep, as arrays by name."""

    def width(self, dim: int) -> int:
        """Return the dimension D of single vectors, for tokens of dimension ``dim``."""

    def dim(self, given: int) -> int:
        """Return the dimension of transformed tokens, for tokens of a given dimension."""

    def no_documents(self, dim: int) -> Batch:
        """Return the columns of no documents; an error if what was learnt does not fit ``dim``."""

    def encode(self, ids: Sequence[DocumentId], tokens: TokenBatch) -> tuple[Self, Batch]:
        """Return the columns of documents, and the codec, fitted to them if it was not yet."""

    def with_queries(self, queries: TokenBatch) -> Self:
        """Return the codec with the statistics of more queries."""

    def vectors(self, rows: Rows, documents: NDArray[np.int64]) -> Tensor:
        """Return the single vectors of documents. Shape: (n, D), float32."""

    def matrix_sum(self, rows: Rows, documents: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the sum of the matrices of documents, as they are stored. Shape: (d, d)."""

    def encode_queries(self, queries: Queries) -> QueryVectors:
        """Return queries to multiply with what :meth:`vectors` returns."""


@dataclass(frozen=True)
class SubspaceCodec:
    """Documents as subspaces."""

    labelled: ClassVar[bool] = False
    settings: Settings
    subspaces: SubspaceEncoder
    fitted: bool = False
    calibration: Calibration | None = None

    @classmethod
    def load(cls, settings: Settings, arrays: Mapping[str, NDArray[Any]]) -> SubspaceCodec:
        """Return the codec of a collection, given its arrays."""
        return cls(settings, SubspaceEncoder.from_arrays(arrays, settings), True)

    @property
    def encoder(self) -> VectorEncoder:
        return VectorEncoder(self.subspaces)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return self.subspaces.to_arrays()

    def width(self, dim: int) -> int:
        return packed_dim(self.dim(dim))

    def dim(self, given: int) -> int:
        return self.subspaces.transforms.dim(given)

    def no_documents(self, dim: int) -> Batch:
        return columns.of_subspaces([], _no_subspaces(self.dim(dim)), self.settings.dtype)

    def encode(self, ids: Sequence[DocumentId], tokens: TokenBatch) -> tuple[SubspaceCodec, Batch]:
        codec = self
        if not self.fitted:
            if self.settings.auto:
                calibration = calibrate(self.subspaces, tokens)
                settings = replace(self.settings, **calibration.settings)
                encoder = self.subspaces.with_settings(settings)
                codec = SubspaceCodec(settings, encoder, calibration=calibration)
            codec = replace(codec, subspaces=codec.subspaces.fitted_to(tokens), fitted=True)
        subspaces = codec.subspaces.subspaces(tokens)
        return codec, columns.of_subspaces(ids, subspaces, self.settings.dtype)

    def with_queries(self, queries: TokenBatch) -> SubspaceCodec:
        return replace(self, subspaces=self.subspaces.with_queries(queries))

    def vectors(self, rows: Rows, documents: NDArray[np.int64]) -> Tensor:
        bases, offsets = _bases(rows, documents)
        return pack_subspaces(bases, offsets, columns.floors(rows)[documents])

    def matrix_sum(self, rows: Rows, documents: NDArray[np.int64]) -> NDArray[np.float64]:
        bases, offsets = _bases(rows, documents)
        return matrix_sum(bases, np.diff(offsets), columns.floors(rows)[documents])

    def encode_queries(self, queries: Queries) -> QueryVectors:
        packed = pack_queries(queries.tokens, queries.against).numpy()
        return QueryVectors(packed, np.zeros(len(packed), np.float32))


def _no_subspaces(dim: int) -> Subspaces:
    none = torch.empty(0)
    return Subspaces(torch.empty(0, dim), np.zeros(1, np.int64), none, none, none)


def _bases(rows: Rows, documents: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.int64]]:
    """Return the directions of documents, one after the other, and their offsets."""
    bases = columns.bases(rows).decode_items(rows.offsets, documents)
    return torch.from_numpy(np.concatenate(bases)), offsets_of([len(basis) for basis in bases])


@dataclass(frozen=True)
class VectorCodec:
    """Documents as single vectors, with tokens or bases beside them if these are to be kept."""

    labelled: ClassVar[bool] = True
    settings: SVSettings
    encoder: VectorEncoder
    fitted: bool = False
    agreement: float | None = None
    calibration: Calibration | None = None

    @classmethod
    def load(cls, settings: SVSettings, arrays: Mapping[str, NDArray[Any]]) -> VectorCodec:
        """Return the codec of a collection, given its arrays."""
        agreed = float(arrays[_AGREEMENT][0]) if _AGREEMENT in arrays else None
        return cls(settings, VectorEncoder.from_arrays(arrays, settings), True, agreed)

    @property
    def subspaces(self) -> SubspaceEncoder:
        return self.encoder.subspaces

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        arrays = self.encoder.to_arrays()
        return (
            arrays if self.agreement is None else arrays | {_AGREEMENT: np.array([self.agreement])}
        )

    def width(self, dim: int) -> int:
        return self.encoder.width

    def dim(self, given: int) -> int:
        return self.subspaces.transforms.dim(given)

    def no_documents(self, dim: int) -> Batch:
        d = self.dim(dim)
        self.encoder.check(d)
        if self.settings.keep_tokens != "none":
            nothing = TokenBatch(torch.empty(0, dim), np.zeros(1, np.int64))
            kept = columns.of_tokens([], nothing, self.settings.keep_tokens)
        elif self.settings.keep_bases:
            kept = columns.of_subspaces([], _no_subspaces(d), "float16")
        else:
            kept = columns.of_nothing([])
        vectors = torch.empty(0, self.encoder.width)
        return columns.with_labels(self.with_vectors(kept, vectors), 0)

    def encode(self, ids: Sequence[DocumentId], tokens: TokenBatch) -> tuple[VectorCodec, Batch]:
        if not self.fitted and self.encoder.projection is None and not self.settings.in_database:
            self._check_width(tokens.dim)
        codec = self._chosen_for(tokens) if self.settings.auto and not self.fitted else self
        encoder = codec.encoder
        if not self.fitted:
            encoder = replace(encoder, subspaces=encoder.subspaces.fitted_to(tokens))
        subspaces = encoder.subspaces.subspaces(tokens) if self.settings.keep_bases else None
        packed = encoder.subspaces.packed(tokens, subspaces)
        if not self.fitted:
            codec = replace(codec, encoder=encoder.centred_on(packed, tokens), fitted=True)
        if self.settings.keep_tokens != "none":
            kept = columns.of_tokens(ids, tokens, self.settings.keep_tokens)
        elif subspaces is not None:
            kept = columns.of_subspaces(ids, subspaces, "float16")
        else:
            kept = columns.of_nothing(ids)
        vectors = codec.encoder.vectors(packed)
        documents = codec.with_vectors(kept, vectors)
        if not self.fitted and columns.has_codes(documents) and len(ids) >= FEWEST_DOCUMENTS:
            codec = codec._measured(tokens, vectors, documents)
        return codec, documents

    def _check_width(self, dim: int) -> None:
        width = packed_dim(self.subspaces.transforms.dim(dim))
        if width > _WIDEST:
            raise ValueError(
                f"tokens of {dim} dimensions make vectors of {width:,}: shorten them with "
                "token_projection=TokenProjection.fit(sample, 128), or use EigenLIIndex"
            )

    def _chosen_for(self, tokens: TokenBatch) -> VectorCodec:
        """Return the codec with the settings that the first documents choose."""
        calibration = calibrate(self.subspaces, tokens, in_rows=self.settings.keep_bases)
        settings = replace(self.settings, **calibration.settings)
        encoder = replace(self.encoder, subspaces=self.subspaces.with_settings(settings))
        return replace(self, settings=settings, encoder=encoder, calibration=calibration)

    def _measured(self, tokens: TokenBatch, vectors: Tensor, documents: Rows) -> VectorCodec:
        """Return the codec with the agreement of its codes with the vectors they stand for."""
        runs, owners = pseudo_queries(tokens)
        plain = Queries(runs, self.subspaces.transforms.queries(runs))
        queries = torch.from_numpy(self.encoder.encode_queries(plain).vectors)
        chosen = np.union1d(sample_documents(len(vectors)), owners)
        coded = torch.from_numpy(self.scores(documents, chosen, queries))
        agreed = agreement(queries @ vectors[chosen].mT, coded, np.searchsorted(chosen, owners))
        if agreed < ENOUGH:
            warnings.warn(
                f"codes of dtype={self.settings.dtype!r} keep a correlation of {agreed:.2f} with the "
                "exact scores of these documents: the index will find others. Use a dtype of more "
                "bits, or standardise the tokens",
                stacklevel=2,
            )
        return replace(self, agreement=agreed)

    def with_queries(self, queries: TokenBatch) -> VectorCodec:
        subspaces = self.subspaces.with_queries(queries)
        return replace(self, encoder=replace(self.encoder, subspaces=subspaces))

    def with_vectors(self, documents: Batch, vectors: Tensor) -> Batch:
        """Return documents with vectors (n, width) as the index stores them."""
        return columns.with_vectors(documents, self.encoder.stored(vectors, self.settings.dtype))

    def read(self, rows: Rows, chosen: NDArray[np.int64]) -> Tensor:
        """Return the vectors that the index searches, centred or projected. Shape: (n, width)."""
        stored = columns.vectors(rows, chosen, self.settings.dtype, self.encoder.width)
        return stored.decode(self.encoder.axis, self.encoder.mean_row)

    def scores(
        self, rows: Rows, chosen: slice | NDArray[np.int64], queries: Tensor
    ) -> NDArray[np.float32]:
        """Return the inner products of queries (m, width) with such vectors. Shape: (m, chosen)."""
        stored = columns.vectors(rows, chosen, self.settings.dtype, self.encoder.width)
        return stored.scores(queries, self.encoder.axis, self.encoder.mean_row)

    def vectors(self, rows: Rows, documents: NDArray[np.int64]) -> Tensor:
        return self.encoder.uncentred(self.read(rows, documents))

    def matrix_sum(self, rows: Rows, documents: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.encoder.matrix_sum(self.read(rows, documents))

    def encode_queries(self, queries: Queries) -> QueryVectors:
        encoded = self.encoder.encode_queries(queries)
        if self.encoder.projection is not None:
            return encoded
        return encoded._replace(constants=np.zeros_like(encoded.constants))
