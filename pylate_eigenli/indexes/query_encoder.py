"""QueryEncoder: vectors of queries for the exported vectors of an index, without the index."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save
from torch import Tensor
from typing_extensions import Self

from ..errors import IndexFormatError
from ..spectral.background import Queries, QueryFilter
from ..spectral.settings import SpectralSettings
from ..spectral.standardise import named
from ..storage.disk import open_file
from ..tokens import LONGEST_QUERY_TOKEN, TokenBatch, collect
from ..vectors.encoder import QueryVectors
from ..vectors.packing import pack_queries
from ..vectors.projection import SVProjection
from ..vectors.token_transforms import TokenTransforms

_KEY = "pylate_eigenli"
_PROJECTION, _POWER, _BACKGROUND = "projection.vectors", "filter.power", "filter.against"
_MAX_DIM = 1 << 20  # of tokens; those of models have a few hundred or thousand
_SPECTRAL = [field.name for field in fields(SpectralSettings)]


@dataclass(frozen=True)
class QueryEncoder:
    """Makes the single vectors of queries for the vectors that an index exports.

    It has all that the index does to queries: projection, centring and standardisation of tokens,
    idf, background subtraction, packing, and the projection of vectors. :meth:`save` writes it to
    one file.

    Parameters
    ----------
    dim
        Dimension of token embeddings.
    transforms, filter
        Applied to tokens, and to whole queries.
    projection
        Shortens the vectors, if there is one.

    Examples
    --------
    >>> import tempfile
    >>> from pylate_eigenli import EigenLIIndex
    >>> folder = tempfile.mkdtemp()
    >>> index = EigenLIIndex(folder, k=2, preset="plus", show_progress=False)
    >>> index = index.add_documents(["first", "second"], torch.eye(8).reshape(2, 4, 8))
    >>> (ids, vectors), = index.vectors()
    >>> index.query_encoder().save(Path(folder, "queries.safetensors"))
    >>> encode = QueryEncoder.load(Path(folder, "queries.safetensors"))
    >>> ids[(encode(torch.eye(8)[4:]).vectors @ vectors.T).argmax()]
    'second'
    """

    dim: int
    transforms: TokenTransforms
    filter: QueryFilter
    projection: SVProjection | None = None

    def __call__(self, queries_embeddings: Any) -> QueryVectors:
        """Return the vectors of queries, given their token embeddings in any form."""
        packed = pack_queries(self.queries(collected(queries_embeddings, self.dim)))
        if self.projection is None:
            return QueryVectors(packed.numpy(), np.zeros(len(packed), np.float32))
        projected = self.projection.transform_queries(packed)
        return QueryVectors(projected.numpy(), self.projection.constants(packed).numpy())

    def queries(self, tokens: TokenBatch) -> Queries:
        """Return transformed and filtered queries."""
        return self.filter(tokens, self.transforms.queries(tokens))

    def save(self, path: str | Path) -> None:
        """Write everything to a safetensors file."""
        Path(path).write_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the contents of the file."""
        arrays = self.transforms.to_arrays()
        if self.projection is not None:
            kept = self.projection.to_arrays()
            arrays |= {f"{_PROJECTION}.{name}": array for name, array in kept.items()}
        for name, tensor in ((_POWER, self.filter.power), (_BACKGROUND, self.filter.background)):
            if tensor is not None:
                arrays[name] = tensor.numpy()
        settings = asdict(self.transforms.settings)
        facts = {
            "dim": self.dim,
            "settings": {name: settings[name] for name in _SPECTRAL},
            "share": self.filter.share,
            "by_evidence": self.filter.by_evidence,
        }
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        return save(contiguous, metadata={_KEY: json.dumps(facts)})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that :meth:`save` or an export has written."""
        from safetensors import safe_open

        open_file(Path(path)).close()  # a pipe or a device would keep safe_open waiting
        try:
            with safe_open(path, framework="numpy") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                facts = json.loads(file.metadata()[_KEY])
            settings = SpectralSettings(**facts["settings"])
            kept = named(arrays, _PROJECTION)
            encoder = cls(
                _checked_dim(facts["dim"]),
                TokenTransforms.from_arrays(arrays, settings),
                QueryFilter(
                    _tensor(arrays, _POWER),
                    _tensor(arrays, _BACKGROUND),
                    facts["share"],
                    facts["by_evidence"],
                ),
                SVProjection.from_arrays(kept) if kept else None,
            )
            encoder._check()
        except Exception as error:  # safetensors, NumPy and torch have errors of many kinds
            raise IndexFormatError(f"{path} has no recipe for queries: {error}") from error
        return encoder

    def _check(self) -> None:
        """Encode a query, to find out whether all parts fit together."""
        query = np.random.default_rng(0).standard_normal((1, 8, self.dim), np.float32)
        if not np.isfinite(self(query).vectors).all():
            raise ValueError("it gives vectors that are not finite")


def collected(embeddings: Any, dim: int | None) -> TokenBatch:
    """Return the tokens of queries, given in any form."""
    return collect(embeddings, dim=dim, device="cpu", names="query", longest=LONGEST_QUERY_TOKEN)


def _checked_dim(dim: object) -> int:
    if type(dim) is int and 0 < dim <= _MAX_DIM:
        return dim
    raise ValueError(f"tokens of {dim!r:.40} dimensions")


def _tensor(arrays: Mapping[str, Any], name: str) -> Tensor | None:
    return torch.from_numpy(arrays[name]) if name in arrays else None
