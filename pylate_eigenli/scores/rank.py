"""Rerank candidates by EigenLI, with the signature of ``pylate.rank.rerank``."""

from __future__ import annotations

from typing import Any

import torch

from ..spectral.filters import SpectralFilter, as_filter
from ..spectral.subspace import ShortDocuments, subspaces_of
from ..tokens import collect, split_items
from .interface import RerankResult


def rerank(
    documents_ids: list[list[int | str]],
    queries_embeddings: Any,
    documents_embeddings: Any,
    device: str | None = None,
    *,
    k: int = 32,
    short_documents: ShortDocuments = "fill",
    filter: str | SpectralFilter = "hard",
) -> list[list[RerankResult]]:
    """Sort the candidates of each query by their EigenLI score.

    Parameters
    ----------
    documents_ids
        Ids of the candidates of each query.
    queries_embeddings
        Token embeddings of the queries.
    documents_embeddings
        Token embeddings of the candidates of each query, in the order of ``documents_ids``.
    device
        Device of the computation. By default the device of the embeddings.
    k, short_documents, filter
        Settings of the compression, see :func:`pylate_eigenli.compress`.

    Returns
    -------
    For each query a list of ``RerankResult``, best first. Equal scores keep their order.

    Examples
    --------
    >>> import torch
    >>> east, north = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> results = rerank([["e", "n"]], [torch.tensor([[0.6, 0.8]])], [[east, north]], k=1)
    >>> [(result["id"], round(result["score"], 2)) for result in results[0]]
    [('n', 0.64), ('e', 0.36)]
    """
    documents_ids, documents_embeddings = list(documents_ids), list(documents_embeddings)
    items = list(split_items(queries_embeddings))
    if not items and not documents_ids and not documents_embeddings:
        return []
    queries = collect(items, device=device, names="query")
    if not len(queries) == len(documents_ids) == len(documents_embeddings):
        raise ValueError(
            f"{len(queries)} queries, {len(documents_ids)} lists of ids and "
            f"{len(documents_embeddings)} lists of documents must have the same length"
        )
    results: list[list[RerankResult]] = []
    for i, (query, ids, documents) in enumerate(
        zip(queries, documents_ids, documents_embeddings, strict=True)
    ):
        if len(ids) != len(documents):
            raise ValueError(f"query {i} has {len(ids)} ids for {len(documents)} documents")
        if not len(ids):
            results.append([])
            continue
        names = [f"document {document_id!r}" for document_id in ids]
        tokens = collect(documents, dim=queries.dim, device=query.device, names=names)
        subspaces = subspaces_of(tokens, k, short_documents, as_filter(filter))
        scores = subspaces.contributions(query).sum(1)
        values, order = torch.sort(scores, descending=True, stable=True)
        results.append(
            [
                RerankResult(id=ids[j], score=score)
                for j, score in zip(order.tolist(), values.tolist(), strict=True)
            ]
        )
    return results
