"""Checks of what callers give an index: documents, ids and subsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any

import numpy as np

from ..errors import check_positive
from ..storage import DocumentId
from ..storage.ids import checked_ids
from ..tokens import TokenBatch, collect, split_items


def document_batches(
    documents_ids: DocumentId | Iterable[DocumentId],
    documents_embeddings: Any,
    batch_size: int,
    dim: int | None,
    device: str | None,
) -> tuple[int | None, Iterator[tuple[list[DocumentId], TokenBatch]]]:
    """Return the number of documents, if it is known, and their ids and tokens in batches."""
    check_positive(batch_size=batch_size)
    ids = several(documents_ids)
    embeddings = split_items(documents_embeddings)
    total = _common_length(ids, embeddings)
    pairs = _pairs(iter(ids), iter(embeddings))
    first = list(islice(pairs, batch_size))
    if not first:
        raise ValueError("no documents were given")
    return total, _collected(first, pairs, dim, device)


def several(documents_ids: DocumentId | Iterable[DocumentId]) -> Iterable[DocumentId]:
    """Return one id or several as an iterable."""
    one = isinstance(documents_ids, (str, int, np.integer))
    return [documents_ids] if one else documents_ids  # type: ignore[list-item, return-value]


def _collected(
    batch: list[tuple[DocumentId, Any]],
    rest: Iterator[tuple[DocumentId, Any]],
    dim: int | None,
    device: str | None,
) -> Iterator[tuple[list[DocumentId], TokenBatch]]:
    """Yield the ids and tokens of a batch and of what follows it, in batches of that size."""
    size = len(batch)
    while batch:
        ids = [document_id for document_id, _ in batch]
        names = [f"document {document_id!r}" for document_id in ids]
        tokens = collect([x for _, x in batch], dim=dim, device=device, names=names)
        dim = tokens.dim
        yield ids, tokens
        batch = list(islice(rest, size))


def _common_length(ids: Iterable[Any], embeddings: Iterable[Any]) -> int | None:
    """Return the number of documents, if it is known; raise an error if two numbers differ."""
    lengths = [len(x) if isinstance(x, Sized) else None for x in (ids, embeddings)]
    if None not in lengths and lengths[0] != lengths[1]:
        raise ValueError(f"{lengths[0]} documents_ids for {lengths[1]} documents_embeddings")
    return next((length for length in lengths if length is not None), None)


def _pairs(
    ids: Iterator[DocumentId], embeddings: Iterator[Any]
) -> Iterator[tuple[DocumentId, Any]]:
    """Pair ids with embeddings; raise an error if their numbers differ, also of generators."""
    missing = object()
    for document_id in ids:
        tokens = next(embeddings, missing)
        if tokens is missing:
            raise ValueError(f"document {document_id!r} has an id but no embeddings")
        yield document_id, tokens
    if next(embeddings, missing) is not missing:
        raise ValueError("there are more documents_embeddings than documents_ids")


def subset_per_query(
    subset: Sequence[Sequence[DocumentId]] | Sequence[DocumentId], n_queries: int
) -> list[Sequence[DocumentId]]:
    """Return the list of ids for each query; one list for all queries is shared."""
    if isinstance(subset, str):
        raise TypeError(f"subset must be a list of ids, or one list per query, got {subset!r}")
    items: list[Any] = list(subset)  # also of a set
    per_query = len(items) > 0 and not isinstance(items[0], (str, int, np.integer))
    if per_query and len(items) != n_queries:
        raise ValueError(f"subset has {len(items)} lists for {n_queries} queries")
    return items if per_query else [items] * n_queries


def grouped_ids(documents_ids: Sequence[Sequence[DocumentId]]) -> list[list[DocumentId]]:
    """Return checked lists of ids; raise an error for a flat list."""
    if any(isinstance(ids, (str, int, np.integer)) for ids in documents_ids):
        raise TypeError("documents_ids must be a list of lists of ids")
    return [checked_ids(ids) for ids in documents_ids]
