"""From documents and queries to single vectors: settings and projections of an SV index."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from . import backends, vector_column
from .projection import SVProjection, TokenProjection
from .storage import Snapshot, Transaction
from .subspace import ShortDocuments, Subspaces, check_k, check_short_documents, subspaces_of
from .tokens import TokenBatch
from .vector_column import VectorDtype
from .vectors import pack_moments, pack_subspaces, packed_dim

KeepTokens = Literal["none", "float16", "int8"]

_PROJECTION = "projection."  # begins the names of their arrays in the collection


@dataclass(frozen=True)
class SVSettings:
    """What an index is made with; kept in its manifest and fixed from the first document on."""

    k: int = 32
    dtype: VectorDtype = "int8"
    short_documents: ShortDocuments = "fill"
    keep_tokens: KeepTokens = "none"
    keep_bases: bool = False
    projection: int | None = None
    token_projection: int | None = None
    backend: str = "exact"
    backend_options: dict[str, Any] = field(default_factory=dict)

    def width(self, dim: int) -> int:
        """Return the dimension of the vectors, for tokens of dimension ``dim``."""
        return self.projection or packed_dim(self.token_projection or dim)

    def __post_init__(self) -> None:
        check_k(self.k, None)
        check_short_documents(self.short_documents)
        for name, value, choices in (
            ("dtype", self.dtype, vector_column.DTYPES),
            ("keep_tokens", self.keep_tokens, get_args(KeepTokens)),
            ("backend", self.backend, ("exact", *backends.NAMES)),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


class Projections(NamedTuple):
    """What makes tokens and vectors shorter; kept as arrays of the collection."""

    tokens: TokenProjection | None
    vectors: SVProjection | None

    @classmethod
    def load(cls, snapshot: Snapshot) -> Projections:
        """Return the projections of a state."""
        arrays: dict[str, dict[str, NDArray[Any]]] = {"tokens": {}, "vectors": {}}
        for name, array in snapshot.collection.items():
            kind, _, rest = name.removeprefix(_PROJECTION).partition(".")
            if name.startswith(_PROJECTION):
                arrays[kind][rest] = array
        return cls(
            TokenProjection.from_arrays(arrays["tokens"]) if arrays["tokens"] else None,
            SVProjection.from_arrays(arrays["vectors"]) if arrays["vectors"] else None,
        )

    def store(self, transaction: Transaction) -> None:
        """Make the projections part of the collection."""
        for kind, projection in zip(self._fields, self, strict=True):
            if projection is not None:
                for name, array in projection.to_arrays().items():
                    transaction.set_collection(f"{_PROJECTION}{kind}.{name}", array)

    def project(self, batch: TokenBatch) -> TokenBatch:
        """Return the tokens that subspaces are made of and compared with."""
        return batch if self.tokens is None else self.tokens.transform_batch(batch)

    def subspaces(self, tokens: TokenBatch, settings: SVSettings) -> Subspaces:
        """Return the subspaces of documents."""
        return subspaces_of(self.project(tokens), settings.k, settings.short_documents)

    def document_vectors(self, subspaces: Subspaces, k: int) -> torch.Tensor:
        """Return the vectors of documents, centred: by the projection, or else by the vector of
        the average k-dimensional subspace, (k / d) I, which adds the same to all of a query's scores.
        """
        bases = subspaces.bases.cpu()
        packed = pack_subspaces(bases, subspaces.offsets, subspaces.floors.float().cpu().numpy())
        if self.vectors is not None:
            return self.vectors.transform_documents(packed)
        d = bases.shape[1]
        packed[:, :d] -= k / d
        return packed

    def query_vectors(
        self, queries: TokenBatch, k: int
    ) -> tuple[torch.Tensor, NDArray[np.float32]]:
        """Return the vectors of queries and what to add to all scores of each."""
        queries = self.project(queries)
        packed = pack_moments(queries)
        if self.vectors is not None:
            return self.vectors.transform_queries(packed), self.vectors.constants(packed).numpy()
        d = queries.dim
        return packed, (packed[:, :d].sum(1) * (k / d)).numpy()
