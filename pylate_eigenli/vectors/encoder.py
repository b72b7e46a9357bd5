"""From documents and queries to single vectors: settings and projections of an SV index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from ..indexes import ann as backends
from ..indexes import columns as vector_column
from ..indexes import databases as servers
from ..indexes.columns import VectorDtype
from ..spectral.background import Queries
from ..spectral.filters import Saturating, as_filter
from ..spectral.settings import SpectralSettings, check_choice, check_unchanged
from ..spectral.subspace import Subspaces
from ..storage import Transaction
from ..tokens import TokenBatch
from . import rows as codec
from .packing import pack_queries, pack_subspaces, packed_dim, unpack, unpacked_dim
from .projection import SVProjection, TokenProjection
from .soft import soft_vectors

KeepTokens = Literal["none", "float16", "int8"]

_PROJECTION = "projection."  # begins the names of their arrays in the collection
_CENTRE, _AXIS = "centre", "axis"
_ISOTROPIC_DOCUMENTS = 32  # that the centre is an average of, besides those of the first batch


@dataclass(frozen=True)
class SVSettings(SpectralSettings):
    """What an index is made with; kept in its manifest and fixed from the first document on."""

    dtype: VectorDtype = "int8"
    keep_tokens: KeepTokens = "none"
    keep_bases: bool = False
    projection: int | None = None
    token_projection: int | None = None
    backend: str = "exact"
    backend_options: dict[str, Any] = field(default_factory=dict)

    def width(self, dim: int) -> int:
        """Return the dimension of the vectors, for tokens of dimension ``dim``."""
        return self.projection or packed_dim(self.token_projection or dim)

    def opened_with(self, wanted: Mapping[str, Any], where: object) -> Self:
        """Return the settings of an index that exists, for somebody who opens it.

        Options of the backend that only searches depend on are theirs to choose, too.
        """
        rest = dict(wanted)
        options = rest.pop("backend_options", None)
        settings = super().opened_with(rest, where)
        if not options:
            return settings
        parts = servers if self.backend in servers.NAMES else backends
        of_searches = () if self.backend == "exact" else parts.options_of_searches(self.backend)
        for name, value in options.items():
            if name not in of_searches:
                check_unchanged(
                    where, f"{name} in backend_options", self.backend_options.get(name), value
                )
        return replace(settings, backend_options={**self.backend_options, **options})

    @property
    def kept(self) -> Literal["token", "basis"] | None:
        """Name of the rows that are kept of each document, for re-ranking; None if there are none."""
        if self.keep_tokens != "none":
            return "token"
        return "basis" if self.keep_bases else None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("dtype", self.dtype, vector_column.DTYPES)
        check_choice("keep_tokens", self.keep_tokens, get_args(KeepTokens))
        check_choice("backend", self.backend, ("exact", *backends.NAMES, *servers.NAMES))


class Kept(NamedTuple):
    """What documents are re-ranked from, as columns of a batch (:mod:`pylate_eigenli.storage`)."""

    documents: dict[str, NDArray[Any]]
    rows: dict[str, NDArray[Any]]
    lengths: NDArray[np.int64] | None

    @classmethod
    def of(cls, tokens: TokenBatch, subspaces: Subspaces | None, settings: SVSettings) -> Kept:
        """Return the tokens of documents, or else their subspaces if there are any."""
        if settings.keep_tokens != "none":
            rows = codec.encode("token", tokens.tokens, settings.keep_tokens)
            return cls({}, rows, tokens.lengths)
        if subspaces is not None:
            floors = subspaces.floors.float().cpu().numpy()
            rows = codec.encode("basis", subspaces.rows, "float16")
            return cls({"floor": floors}, rows, subspaces.ranks)
        return cls({}, {}, None)


class Projections(NamedTuple):
    """What makes tokens and vectors shorter; kept as arrays of the collection.

    Parameters
    ----------
    tokens, vectors
        The projections, if any.
    centre
        What is subtracted from vectors that are not projected, near the mean of all of them: codes
        of few bits are best spent on what documents do not have in common. Shape: (D,), float32.
    axis
        The direction of that mean: see :mod:`pylate_eigenli.indexes.columns`. Shape: (D,), float32.
    """

    tokens: TokenProjection | None = None
    vectors: SVProjection | None = None
    centre: Tensor | None = None
    axis: Tensor | None = None

    @classmethod
    def load(cls, arrays: Mapping[str, NDArray[Any]]) -> Projections:
        """Return the projections among the arrays of a collection."""
        found: dict[str, dict[str, NDArray[Any]]] = {"tokens": {}, "vectors": {}}
        for name, array in arrays.items():
            kind, _, rest = name.removeprefix(_PROJECTION).partition(".")
            if name.startswith(_PROJECTION):
                found[kind][rest] = array
        centre, axis = arrays.get(_CENTRE), arrays.get(_AXIS)
        return cls(
            TokenProjection.from_arrays(found["tokens"]) if found["tokens"] else None,
            SVProjection.from_arrays(found["vectors"]) if found["vectors"] else None,
            None if centre is None else torch.tensor(centre),
            None if axis is None else torch.tensor(axis),
        )

    def store(self, transaction: Transaction) -> None:
        """Make the projections part of the collection."""
        for kind, projection in (("tokens", self.tokens), ("vectors", self.vectors)):
            if projection is not None:
                for name, array in projection.to_arrays().items():
                    transaction.set_collection(f"{_PROJECTION}{kind}.{name}", array)
        for name, vector in ((_CENTRE, self.centre), (_AXIS, self.axis)):
            if vector is not None:
                transaction.set_collection(name, vector.numpy())

    def centred_on(self, packed: Tensor, settings: SVSettings) -> Projections:
        """Return the projections with centre and axis chosen for vectors like those given (n, D).

        The average k-dimensional subspace, (k / d) I, counts as some of them, so that a first
        batch of few documents does no harm.
        """
        if self.vectors is not None:
            mean = self.vectors.directions @ self.vectors.mean
            return self._replace(axis=torch.nn.functional.normalize(mean, dim=0))
        isotropic = _isotropic(settings, unpacked_dim(packed.shape[1]))
        total = packed.sum(0, dtype=torch.float64) + _ISOTROPIC_DOCUMENTS * isotropic
        centre = (total / (len(packed) + _ISOTROPIC_DOCUMENTS)).float()
        return self._replace(centre=centre, axis=torch.nn.functional.normalize(centre, dim=0))

    def project(self, batch: TokenBatch) -> TokenBatch:
        """Return the tokens that subspaces are made of and compared with."""
        return batch if self.tokens is None else self.tokens.transform_batch(batch)

    def compress(self, tokens: TokenBatch, settings: SVSettings) -> tuple[Tensor, Kept]:
        """Return the kernel vectors (n, D) of documents and what is kept beside them."""
        subspaces = settings.subspaces(self.project(tokens)) if settings.keep_bases else None
        return self.packed(tokens, settings, subspaces), Kept.of(tokens, subspaces, settings)

    def packed(
        self, tokens: TokenBatch, settings: SVSettings, subspaces: Subspaces | None = None
    ) -> Tensor:
        """Return the kernel vectors of documents, neither centred nor projected. Shape: (n, D).

        Unless their subspaces are given (and then stand for them), soft filters need none.
        """
        tokens = self.project(tokens)
        chosen = as_filter(settings.filter)
        if subspaces is None and isinstance(chosen, Saturating):
            return soft_vectors(settings.centred(tokens), chosen.thresholds(tokens))
        subspaces = subspaces or settings.subspaces(tokens)
        floors = subspaces.floors.float().cpu().numpy()
        return pack_subspaces(subspaces.rows.float().cpu(), subspaces.offsets, floors)

    def document_vectors(self, packed: Tensor) -> Tensor:
        """Return the vectors to keep of kernel vectors (n, D), which are overwritten."""
        if self.vectors is not None:
            return self.vectors.transform_documents(packed)
        assert self.centre is not None
        return packed.sub_(self.centre)

    def query_vectors(self, queries: Queries) -> tuple[Tensor, NDArray[np.float32]]:
        """Return the vectors of queries and what to add to all scores of each."""
        packed = pack_queries(queries.tokens, queries.against)
        if self.vectors is not None:
            return self.vectors.transform_queries(packed), self.vectors.constants(packed).numpy()
        assert self.centre is not None
        return packed, (packed @ self.centre).numpy()

    def matrix_sum(self, vectors: Tensor) -> NDArray[np.float64]:
        """Return the sum of the documents' matrices, as far as their vectors tell. Shape: (d, d)."""
        total = vectors.sum(0, dtype=torch.float64)
        if self.vectors is not None:
            packed = self.vectors.restore(total) + len(vectors) * self.vectors.mean.double()
        else:
            assert self.centre is not None
            packed = total + len(vectors) * self.centre.double()
        matrix: NDArray[np.float64] = unpack(packed[None])[0].numpy()
        return matrix


def _isotropic(settings: SVSettings, d: int) -> Tensor:
    """Return the kernel vector of the average k-dimensional subspace. Shape: (D,), float64."""
    packed = torch.zeros(packed_dim(d), dtype=torch.float64)
    packed[:d] = settings.k / d
    return packed
