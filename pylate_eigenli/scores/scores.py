"""EigenLI scores, with the shapes and masks that PyLate and sentence-transformers use for MaxSim.

The score of a query q_1..q_n and a subspace with orthonormal basis w_1..w_k is
sum_i sum_j <q_i, w_j>^2. It depends on the query only through its moment sum_i q_i q_i' and on the
document only through its projector sum_j w_j w_j', so one matrix product scores all pairs of a
batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..spectral.filters import SpectralFilter
from ..spectral.subspace import ShortDocuments, compress
from ..tokens import collect, pad


def without_autocast(x: Tensor) -> torch.autocast:
    """Return a context in which torch computes in the dtype of x, even under autocast.

    Trainers call scorers under autocast, and no eigensolver supports its half precision.
    """
    return torch.autocast(x.device.type, enabled=False)


def moments_of(vectors: Any, mask: Any, names: str = "embeddings", ndim: int = 0) -> Tensor:
    """Return the second moments (..., d, d) of vectors (..., n, d), in float32 or float64.

    Vectors may be a list of (n_i, d); only those in the mask (..., n) count, if there is one. Errors
    call them by ``names`` if they do not have ``ndim`` dimensions.
    """
    x = pad(vectors)
    # Sums of many squares are too inaccurate in half precision.
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    if ndim and x.ndim != ndim:
        raise ValueError(f"{names} must be {ndim}-D, got the shape {tuple(x.shape)}")
    if mask is not None:
        mask = torch.as_tensor(mask, device=x.device)
        if mask.shape != x.shape[:-1]:
            raise ValueError(
                f"{names} have the shape {tuple(x.shape)}, but their mask {tuple(mask.shape)}"
            )
        x = x * mask.to(x.dtype).unsqueeze(-1)
    with without_autocast(x):
        return x.mT @ x


def eigenli_scores(
    queries_embeddings: Any,
    documents_bases: Any,
    queries_mask: Any = None,
    documents_mask: Any = None,
) -> Tensor:
    """Score every query against every document.

    Parameters
    ----------
    queries_embeddings
        Shape: (queries, tokens, d), or a list of (tokens, d) of different lengths.
    documents_bases
        Orthonormal bases, padded with zero rows. Shape: (documents, k, d), or a list of (k_i, d).
    queries_mask
        Shape: (queries, tokens).
    documents_mask
        Shape: (documents, k).

    Returns
    -------
    Shape: (queries, documents), float32 or float64.

    Examples
    --------
    >>> import torch
    >>> queries = torch.tensor([[[1.0, 0.0, 0.0], [0.6, 0.8, 0.0]]])
    >>> bases = torch.tensor([[[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]])
    >>> eigenli_scores(queries, bases)
    tensor([[1.3600, 0.6400, 0.0000]])
    """
    queries = moments_of(queries_embeddings, queries_mask, "queries_embeddings", 3)
    documents = moments_of(documents_bases, documents_mask, "documents_bases", 3)
    _check_dimensions(queries, documents)
    with without_autocast(queries):
        return queries.flatten(1) @ documents.flatten(1).to(queries).mT


def eigenli_scores_pairwise(
    queries_embeddings: Any,
    documents_bases: Any,
    queries_mask: Any = None,
    documents_mask: Any = None,
) -> Tensor:
    """Score each query against the document at the same position. Shape: (n,).

    Embeddings, bases and masks as for :func:`eigenli_scores`.

    Examples
    --------
    >>> import torch
    >>> queries = torch.tensor([[[1.0, 0.0]], [[0.6, 0.8]]])
    >>> bases = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> eigenli_scores_pairwise(queries, bases)
    tensor([1.0000, 0.6400])
    """
    queries = moments_of(queries_embeddings, queries_mask, "queries_embeddings", 3)
    documents = moments_of(documents_bases, documents_mask, "documents_bases", 3)
    return paired_scores(queries, documents.to(queries))


def paired_scores(queries: Tensor, documents: Tensor) -> Tensor:
    """Score each query moment against the document matrix at the same position. Shape: (n,)."""
    _check_dimensions(queries, documents)
    if len(queries) != len(documents):
        raise ValueError(f"{len(queries)} queries cannot be paired with {len(documents)} documents")
    return (queries * documents).sum((-2, -1))


def eigenli_kd_scores(
    queries_embeddings: Any,
    documents_bases: Any,
    queries_mask: Any = None,
    documents_mask: Any = None,
) -> Tensor:
    """Score each query against its own candidates, for knowledge distillation.

    As :func:`eigenli_scores`, except for the shapes of the bases, (queries, candidates, k, d), of
    their mask, (queries, candidates, k), and of the result, (queries, candidates).

    Examples
    --------
    >>> import torch
    >>> queries = torch.tensor([[[0.6, 0.8]]])
    >>> bases = torch.tensor([[[[1.0, 0.0]], [[0.0, 1.0]]]])
    >>> eigenli_kd_scores(queries, bases)
    tensor([[0.3600, 0.6400]])
    """
    queries = moments_of(queries_embeddings, queries_mask, "queries_embeddings", 3)
    documents = moments_of(documents_bases, documents_mask, "documents_bases", 4)
    _check_dimensions(queries, documents)
    if len(queries) != len(documents):
        raise ValueError(f"{len(queries)} queries, but candidates of {len(documents)}")
    with without_autocast(queries):
        return torch.einsum("aij,abij->ab", queries, documents.to(queries))


def eigenli_token_scores(
    queries_embeddings: Any,
    documents_embeddings: Any,
    k: int = 32,
    *,
    short_documents: ShortDocuments = "fill",
    filter: str | SpectralFilter = "hard",
) -> Tensor:
    """Score every query against every document as an index does, from token embeddings.

    It is a score function for the evaluators of sentence-transformers:
    ``MultiVectorInformationRetrievalEvaluator(..., score_functions={"eigenli": eigenli_token_scores})``,
    with ``functools.partial(eigenli_token_scores, k=16)`` for another k.

    Parameters
    ----------
    queries_embeddings, documents_embeddings
        Lists of (tokens, d), or zero-padded 3-D batches.
    k, short_documents, filter
        Settings of the compression, see :func:`pylate_eigenli.compress`.

    Returns
    -------
    Shape: (queries, documents), float32, on the device of the documents.

    Examples
    --------
    >>> import torch
    >>> document = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0]])
    >>> eigenli_token_scores(document[:1], [document, torch.eye(3)[2:]], k=1)
    tensor([[0.9000, 0.0000]])
    """
    subspaces = compress(documents_embeddings, k, short_documents=short_documents, filter=filter)
    d, device = subspaces.bases.shape[1], subspaces.bases.device
    queries = collect(queries_embeddings, dim=d, device=device, names="query")
    # Query by query: the moments of all documents can be larger than their directions.
    return torch.stack([subspaces.contributions(query).sum(1) for query in queries])


def _check_dimensions(queries: Tensor, documents: Tensor) -> None:
    if queries.shape[-1] != documents.shape[-1]:
        raise ValueError(
            f"queries have dimension {queries.shape[-1]}, but documents have dimension "
            f"{documents.shape[-1]}"
        )
