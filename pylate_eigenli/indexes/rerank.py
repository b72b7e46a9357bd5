"""The second stage of a search: exact scores of candidates, from what the index keeps of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import check_choice
from ..spectral.background import Queries
from ..storage import DocumentId
from ..tokens import TokenBatch, collect
from ..vectors.packing import pack_queries
from ..vectors.row_scores import maxsim_scores, subspace_scores
from ..vectors.rows import StoredRows
from . import columns
from .codecs import Codec
from .columns import Rows
from .settings import SVSettings

Rerank = Literal["none", "eigenli", "maxsim"]
TokensOf = Callable[[list[DocumentId]], Sequence[Any]]


def check_rerank(rerank: str, settings: SVSettings, tokens_of: TokensOf | None) -> None:
    """Raise an error if a way of re-ranking is unknown, or the index keeps nothing for it."""
    check_choice("rerank", rerank, get_args(Rerank))
    has_tokens = settings.keep_tokens != "none" or tokens_of is not None
    if rerank == "maxsim" and not has_tokens:
        raise ValueError('rerank="maxsim" needs keep_tokens="float16" or "int8", or tokens_of')
    if rerank == "eigenli" and not (has_tokens or settings.keep_bases):
        raise ValueError('rerank="eigenli" needs keep_bases=True, keep_tokens or tokens_of')


@dataclass(frozen=True)
class Reranker:
    """Scores candidates by MaxSim or by their subspaces, which the codec makes of tokens.

    ``tokens_of`` gives the tokens of documents by id if the index does not keep them.
    """

    by: Rerank
    queries: Queries
    codec: Codec
    tokens_of: TokensOf | None

    @cached_property
    def _tokens(self) -> list[Tensor]:
        return list(self.queries.plain if self.by == "maxsim" else self.queries.tokens)

    def scores(self, query: int, rows: Rows, documents: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores of chosen documents for a query. Shape: (documents,), float32."""
        tokens, background = self._tokens[query], self.queries.background_of(query)
        if self.by == "eigenli" and columns.has_bases(rows):
            bases, floors = columns.bases(rows), columns.floors(rows)
            return subspace_scores(bases, rows.offsets, floors, documents, tokens, background)
        if self.by == "maxsim" and columns.has_tokens(rows):
            return maxsim_scores(columns.tokens(rows), rows.offsets, documents, tokens)
        batch = self._documents(rows, documents)
        if self.by == "maxsim":
            stored = StoredRows(batch.tokens.float().numpy())
            return maxsim_scores(stored, batch.offsets, np.arange(len(batch)), tokens)
        packed = self.codec.subspaces.packed(batch)
        return (packed @ pack_queries(self.queries.chosen([query]))[0]).numpy()

    def _documents(self, rows: Rows, documents: NDArray[np.int64]) -> TokenBatch:
        """Return the tokens of documents, kept or asked for."""
        if columns.has_tokens(rows):
            return collect(columns.kept(rows, documents))
        assert self.tokens_of is not None  # check_rerank has seen to it
        ids = rows.ids(documents)
        given = self.tokens_of(ids)
        if len(given) != len(ids):
            raise ValueError(f"tokens_of gave {len(given)} documents for {len(ids)} ids")
        names = [f"document {document_id!r}" for document_id in ids]
        return collect(given, dim=self.queries.plain.dim, device="cpu", names=names)
