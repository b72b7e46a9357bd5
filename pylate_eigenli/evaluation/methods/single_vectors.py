"""Methods that make one vector of each document and of each query: MUVERA and LEMUR.

Documents have any precision of a single-vector index: floats, or codes of 8, 4, 2 or 1 bits around the
mean of all documents. MaxSim over the tokens, kept at 8 bits, may re-rank the best documents, as in an
``EigenLISVIndex``. What makes the vectors is not counted as bytes, because it does not grow with the
documents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import check_choice, check_positive
from ...tokens import TokenBatch, offsets_of
from ...vectors.projection import SVProjection
from ...vectors.quantization import VECTOR_DTYPES, StoredVectors, VectorDtype
from ...vectors.row_scores import maxsim_scores
from ...vectors.rows import StoredRows
from ..baselines import Lemur, Muvera
from ..embeddings import StoredTokens
from .base import Candidates, Family, Hits, Method


class Encoder(Protocol):
    """Makes one vector of each document and of each query, compared by inner products."""

    def encode_documents(self, documents: TokenBatch) -> NDArray[np.float32]:
        """Return the vectors of documents. Shape: (documents, D)."""

    def encode_queries(self, queries: TokenBatch) -> NDArray[np.float32]:
        """Return the vectors of queries. Shape: (queries, D)."""


Fit = Callable[[TokenBatch, TokenBatch | None], tuple[Encoder, NDArray[np.float32]]]
"""Returns an encoder and the vectors of all documents, given queries if it may learn from them."""


@dataclass(frozen=True)
class _Built:
    """What a search needs; ``tokens`` only to re-rank."""

    encoder: Encoder
    projection: SVProjection | None
    vectors: StoredVectors
    centre: Tensor
    axis: Tensor | None
    tokens: StoredRows | None
    offsets: NDArray[np.int64]


class SingleVectors(Method):
    """One vector per document, built by :meth:`finish` from tokens that are kept in the folder.

    Parameters
    ----------
    folder
        Where tokens are kept.
    fit
        Makes the encoder.
    dtype
        Precision of the vectors.
    dim
        Dimension to which an :class:`pylate_eigenli.SVProjection` projects the vectors, if any. A
        collection of fewer documents is not projected.
    rerank
        ``"maxsim"`` scores the best ``n_candidates`` documents again by MaxSim, ``"none"`` does not.
    fit_queries
        Whether the encoder may learn from queries. It is then built when they are known.
    """

    def __init__(
        self,
        folder: Path,
        fit: Fit,
        *,
        dtype: VectorDtype = "float16",
        dim: int | None = None,
        rerank: str = "none",
        n_candidates: int = 100,
        fit_queries: bool = False,
    ) -> None:
        check_choice("dtype", dtype, VECTOR_DTYPES)
        check_choice("rerank", rerank, ("none", "maxsim"))
        check_positive(n_candidates=n_candidates)
        check_positive(or_none=True, dim=dim)
        self._stored = StoredTokens(folder)
        self._fit, self._dtype, self._dim = fit, dtype, dim
        self._reranks, self._candidates = rerank == "maxsim", n_candidates
        self._asked = fit_queries
        self._built: _Built | None = None

    def __len__(self) -> int:
        return len(self._stored)

    def add(self, documents: TokenBatch) -> None:
        self._built = None
        self._stored.append(documents)

    def finish(self) -> None:
        if not self._asked:
            self._build(None)

    def fit_queries(self, queries: TokenBatch) -> None:
        if self._asked:
            self._build(queries)

    def _build(self, queries: TokenBatch | None) -> None:
        parts = [batch for _, batch in self._stored]
        tokens = torch.cat([part.tokens for part in parts])
        offsets = offsets_of(np.concatenate([part.lengths for part in parts]))
        encoder, encoded = self._fit(TokenBatch(tokens, offsets), queries)
        vectors, projection = torch.from_numpy(encoded), None
        if self._dim is not None and self._dim < min(vectors.shape):
            projection = SVProjection.fit(vectors, self._dim)
            vectors = projection.transform_documents(vectors)
        # Codes are best spent on what documents do not have in common.
        centre, axis = torch.zeros(vectors.shape[1]), None
        if self._dtype not in ("float32", "float16"):
            centre = vectors.mean(0)
            axis = torch.nn.functional.normalize(centre, dim=0)
            vectors = vectors - centre
        stored = StoredVectors.encode(vectors, self._dtype, axis)
        kept = StoredRows.encode(tokens, "int8") if self._reranks else None
        self._built = _Built(encoder, projection, stored, centre, axis, kept, offsets)

    @property
    def _ready(self) -> _Built:
        if self._built is None:
            self._build(None)
        assert self._built is not None
        return self._built

    def search(self, queries: TokenBatch, k: int, candidates: Candidates = None) -> list[Hits]:
        """Return the best k documents per query; of equal scores the earlier document wins."""
        ready = self._ready
        queries = TokenBatch(queries.tokens.float().cpu(), queries.offsets)
        asked = torch.from_numpy(ready.encoder.encode_queries(queries))
        if ready.projection is not None:
            asked = ready.projection.transform_queries(asked)
        scores = ready.vectors.scores(asked, ready.axis) + (asked @ ready.centre).numpy()[:, None]
        found = []
        for query, (values, tokens) in enumerate(zip(scores, queries, strict=True)):
            rows = np.arange(len(values)) if candidates is None else np.unique(candidates[query])
            values = values[rows]
            if ready.tokens is not None:
                rows = np.sort(Hits.best(rows, values, self._candidates).rows)
                values = maxsim_scores(ready.tokens, ready.offsets, rows, tokens)
            found.append(Hits.best(rows, values, k))
        return found

    @property
    def nbytes(self) -> int:
        ready = self._ready
        kept = () if ready.tokens is None else (*ready.tokens, ready.offsets)
        return ready.vectors.nbytes + sum(array.nbytes for array in kept if array is not None)

    def close(self) -> None:
        self._built = None


_OPTIONS = ("dtype", "dim", "rerank", "n_candidates")


def _muvera(folder: Path, **options: Any) -> SingleVectors:
    own = {name: options.pop(name) for name in _OPTIONS if name in options}
    encoder = Muvera(**options)
    return SingleVectors(
        folder, lambda documents, _: (encoder, encoder.encode_documents(documents)), **own
    )


def _lemur(folder: Path, **options: Any) -> SingleVectors:
    own = {name: options.pop(name) for name in (*_OPTIONS, "fit_queries") if name in options}
    return SingleVectors(folder, partial(_learnt, Lemur(**options)), **own)


_last: dict[tuple[Any, ...], tuple[Encoder, NDArray[np.float32]]] = {}


def _learnt(
    settings: Lemur, documents: TokenBatch, queries: TokenBatch | None
) -> tuple[Encoder, NDArray[np.float32]]:
    """Learn from a collection, unless it was the last one: methods may differ in dtype only."""
    known_by = [_digest(batch) for batch in (documents, queries) if batch is not None]
    key = (settings, *known_by)
    if key not in _last:
        _last.clear()
        encoder = settings.fit(documents, queries)
        _last[key] = encoder, encoder.encode_documents(documents)
    return _last[key]


def _digest(batch: TokenBatch) -> str:
    digest = blake2b(batch.tokens.contiguous().numpy().data)
    digest.update(batch.offsets.data)
    return digest.hexdigest()


FAMILIES = (
    Family("muvera", _muvera),
    Family("muvera-centered", partial(_muvera, centered=True)),
    Family("lemur", _lemur, learns=True),
    Family("lemur-elm", partial(_lemur, trained=False), learns=True),
)
