"""The second stage of a search: candidates scored exactly, from whatever the index keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..vectors import rows as codec
from .definition import exact_scores, maxsim_scores
from ..storage import DocumentId, Segment
from ..vectors.encoder import Projections, SVSettings
from ..tokens import TokenBatch, collect
from ..vectors.packing import pack_queries

Rerank = Literal["none", "eigenli", "maxsim"]
TokensOf = Callable[[list[DocumentId]], Sequence[Any]]


def check_rerank(rerank: str, settings: SVSettings, tokens_of: TokensOf | None) -> None:
    """Refuse a way of re-ranking that is unknown or that the index keeps nothing for."""
    choices = ("none", "eigenli", "maxsim")
    if rerank not in choices:
        raise ValueError(f"rerank must be one of {', '.join(choices)}, got {rerank!r}")
    has_tokens = settings.kept == "token" or tokens_of is not None
    if rerank == "maxsim" and not has_tokens:
        raise ValueError('rerank="maxsim" needs keep_tokens="float16" or "int8", or tokens_of')
    if rerank == "eigenli" and not (has_tokens or settings.keep_bases):
        raise ValueError('rerank="eigenli" needs keep_bases=True, keep_tokens or tokens_of')


def rescore(
    segment: Segment,
    documents: NDArray[np.int64],
    query: Tensor,
    against: Tensor | None,
    rerank: Rerank,
    settings: SVSettings,
    projections: Projections,
    tokens_of: TokensOf | None,
) -> NDArray[np.float32]:
    """Score documents of a segment by MaxSim or by their subspaces.

    Parameters
    ----------
    segment
        The segment.
    documents
        Rows of documents within it. Shape: (n,).
    query
        Its tokens, those to compare with subspaces for ``"eigenli"``. Shape: (tokens, d), float32.
    against
        What to subtract for ``"eigenli"``, see :class:`pylate_eigenli.spectral.background.Queries`.
    rerank
        ``"maxsim"`` or ``"eigenli"``.
    settings, projections
        How the index makes subspaces of tokens.
    tokens_of
        Gives the tokens of documents by id if the index does not keep them.

    Returns
    -------
    Shape: (n,), float32.
    """
    if rerank == "maxsim" and segment.has("token"):
        return maxsim_scores(segment, documents, query)
    if rerank == "eigenli" and segment.has("basis"):
        return exact_scores(segment, documents, query, against)
    if segment.has("token"):
        batch = collect(codec.decode_documents(segment, "token", documents))
    else:
        assert tokens_of is not None  # check_rerank has seen to it
        ids = segment.ids(documents)
        names = [f"document {document_id!r}" for document_id in ids]
        given = tokens_of(ids)
        if len(given) != len(ids):
            raise ValueError(f"tokens_of gave {len(given)} documents for {len(ids)} ids")
        shorter = projections.tokens
        dim = query.shape[1] if shorter is None else shorter.directions.shape[1]
        batch = collect(given, dim=dim, device="cpu", names=names)
    if rerank == "maxsim":
        return np.array([(d @ query.mT).amax(0).sum().item() for d in batch], np.float32)
    packed = projections.packed(batch, settings)
    as_batch = TokenBatch(query, np.array([0, len(query)]))
    return (packed @ pack_queries(as_batch, against)[0]).numpy()
