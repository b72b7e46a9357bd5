"""EigenLI scores with the shapes, masks and conventions of ``pylate.scores``.

The score of a query q_1..q_n and a subspace with orthonormal basis w_1..w_k is
sum_i sum_j <q_i, w_j>^2. It depends on the query only through its moment sum_i q_i q_i' and on the
document only through its projector sum_j w_j w_j', so one matrix product scores all pairs of a
batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..tokens import pad


def as_given(x: Tensor) -> torch.autocast:
    """Return a context in which torch computes in the dtype of x, even under autocast.

    Trainers call scorers under autocast, and no eigensolver supports its half precision.
    """
    return torch.autocast(x.device.type, enabled=False)


def moments_of(vectors: Any, mask: Any, names: str = "embeddings", ndim: int = 0) -> Tensor:
    """Return the second moments of vectors, in float32 or float64.

    Parameters
    ----------
    vectors
        Shape: (..., n, d), or a list of (n_i, d).
    mask
        Vectors to count; None for all. Shape: (..., n).
    names, ndim
        Name of the vectors in error messages, and number of dimensions that they must have.

    Returns
    -------
    Shape: (..., d, d).
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
    with as_given(x):
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
    with as_given(queries):
        return queries.flatten(1) @ documents.flatten(1).to(queries).mT


def eigenli_scores_pairwise(queries_embeddings: Any, documents_bases: Any) -> Tensor:
    """Score each query against the document at the same position.

    Parameters
    ----------
    queries_embeddings
        Shape: (n, tokens, d), or a list of (tokens, d) of different lengths.
    documents_bases
        Shape: (n, k, d), or a list of (k_i, d).

    Returns
    -------
    Shape: (n,).

    Examples
    --------
    >>> import torch
    >>> queries = torch.tensor([[[1.0, 0.0]], [[0.6, 0.8]]])
    >>> bases = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> eigenli_scores_pairwise(queries, bases)
    tensor([1.0000, 0.6400])
    """
    queries = moments_of(queries_embeddings, None, "queries_embeddings", 3)
    documents = moments_of(documents_bases, None, "documents_bases", 3)
    _check_dimensions(queries, documents)
    if len(queries) != len(documents):
        raise ValueError(f"{len(queries)} queries cannot be paired with {len(documents)} documents")
    return (queries * documents.to(queries)).sum((-2, -1))


def eigenli_kd_scores(
    queries_embeddings: Any,
    documents_bases: Any,
    queries_mask: Any = None,
    documents_mask: Any = None,
) -> Tensor:
    """Score each query against its own candidates, for knowledge distillation.

    Parameters
    ----------
    queries_embeddings
        Shape: (queries, tokens, d).
    documents_bases
        Shape: (queries, candidates, k, d).
    queries_mask
        Shape: (queries, tokens).
    documents_mask
        Shape: (queries, candidates, k).

    Returns
    -------
    Shape: (queries, candidates).

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
    with as_given(queries):
        return torch.einsum("aij,abij->ab", queries, documents.to(queries))


def _check_dimensions(queries: Tensor, documents: Tensor) -> None:
    if queries.shape[-1] != documents.shape[-1]:
        raise ValueError(
            f"queries have dimension {queries.shape[-1]}, but documents have dimension "
            f"{documents.shape[-1]}"
        )
