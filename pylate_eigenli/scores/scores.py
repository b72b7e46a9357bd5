"""EigenLI scores with the shapes, masks and conventions of ``pylate.scores``.

The score of a query q_1..q_n and a subspace with orthonormal basis w_1..w_k is
sum_i sum_j <q_i, w_j>^2. It depends on the query only through its moment sum_i q_i q_i' and on the
document only through its projector sum_j w_j w_j', so all pairs of a batch are one matrix product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..tokens import pad
from .projector import smooth_projector


def _as_given(x: Tensor) -> torch.autocast:
    """Compute in the dtype of x within the block, although mixed precision may be asked for.

    Trainers score under autocast, whose half precision no eigensolver takes.
    """
    return torch.autocast(x.device.type, enabled=False)


def _moments(vectors: Any, mask: Any) -> Tensor:
    """Sum the outer products over the second but last axis, in float32 at least.

    Shape: (..., n, d) and an optional mask (..., n) to (..., d, d).
    """
    x = pad(vectors)
    # Sums of many squares lose too much in half precision.
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    if mask is not None:
        x = x * torch.as_tensor(mask, device=x.device).to(x.dtype).unsqueeze(-1)
    with _as_given(x):
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
        Orthonormal bases, zero rows for padding. Shape: (documents, k, d), or a list of (k_i, d).
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
    queries = _moments(queries_embeddings, queries_mask)
    documents = _moments(documents_bases, documents_mask)
    with _as_given(queries):
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
    queries, documents = _moments(queries_embeddings, None), _moments(documents_bases, None)
    if len(queries) != len(documents):
        raise ValueError(f"{len(queries)} queries cannot be paired with {len(documents)} documents")
    return (queries * documents.to(queries)).sum((-2, -1))


def eigenli_kd_scores(
    queries_embeddings: Any,
    documents_bases: Any,
    queries_mask: Any = None,
    documents_mask: Any = None,
) -> Tensor:
    """Score each query against its own candidates, as knowledge distillation does.

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
    queries = _moments(queries_embeddings, queries_mask)
    documents = _moments(documents_bases, documents_mask)
    with _as_given(queries):
        return torch.einsum("aij,abij->ab", queries, documents.to(queries))


class EigenLIScores:
    """Differentiable EigenLI scores of token embeddings, in place of ``pylate.scores.ColBERTScores``.

    Pass it as ``score_metric`` to PyLate's contrastive losses, or with ``distillation=True`` to
    ``pylate.losses.Distillation``, to train a model for retrieval by subspaces. Documents come as
    token embeddings; their projector is replaced by a smooth one (see
    :mod:`pylate_eigenli.scores.projector`), so that gradients are stable even when eigenvalues coincide.

    Parameters
    ----------
    k
        The number of directions the index will keep.
    sharpness
        How closely the smooth weights follow the cut at k.
    distillation
        Score each query against its own group of documents only.

    Examples
    --------
    >>> import torch
    >>> scores = EigenLIScores(k=2)
    >>> queries = torch.nn.functional.normalize(torch.randn(3, 4, 8), dim=-1)
    >>> documents = torch.nn.functional.normalize(torch.randn(3, 2, 16, 8), dim=-1)
    >>> scores(queries, documents).shape
    torch.Size([3, 6])
    """

    def __init__(self, k: int = 32, sharpness: float = 8.0, distillation: bool = False) -> None:
        if k < 1:
            raise ValueError(f"k must be a positive integer, got {k!r}")
        if sharpness <= 0:
            raise ValueError(f"sharpness must be positive, got {sharpness!r}")
        self.k = k
        self.sharpness = sharpness
        self.distillation = distillation

    def __call__(
        self,
        queries_embeddings: Any,
        documents_embeddings: Any,
        queries_mask: Any = None,
        documents_mask: Any = None,
    ) -> Tensor:
        """Score queries against groups of documents.

        Parameters
        ----------
        queries_embeddings
            Shape: (queries, query tokens, d).
        documents_embeddings
            Token embeddings. Shape: (groups, documents per group, tokens, d).
        queries_mask
            Shape: (queries, query tokens).
        documents_mask
            Shape: (groups, documents per group, tokens).

        Returns
        -------
        Shape: (queries, groups * documents per group), group by group. With ``distillation``
        (queries, documents per group).
        """
        queries = _moments(queries_embeddings, queries_mask)
        moments = _moments(documents_embeddings, documents_mask)
        if moments.ndim != 4:
            raise ValueError(
                "documents_embeddings must have the shape (groups, documents per group, tokens, d), "
                f"got {tuple(pad(documents_embeddings).shape)}"
            )
        groups, per_group, d, _ = moments.shape
        if self.k > d:
            raise ValueError(f"k={self.k} directions were asked for, but tokens have only d={d}")
        with _as_given(moments):
            projectors = smooth_projector(moments.flatten(0, 1), self.k, self.sharpness)
            documents = self._credited(projectors)
            if self.distillation:
                documents = documents.reshape(groups, per_group, d, d)
                return torch.einsum("aij,abij->ab", queries, documents)
            return queries.flatten(1) @ documents.flatten(1).mT

    def _credited(self, projectors: Tensor) -> Tensor:
        """Credit short documents with their missing directions, as the index does by default."""
        d = projectors.shape[-1]
        if self.k == d:
            return projectors
        found = torch.diagonal(projectors, dim1=-2, dim2=-1).sum(-1).clamp_max(self.k)
        share = ((self.k - found) / (d - found))[:, None, None]
        identity = torch.eye(d, dtype=projectors.dtype, device=projectors.device)
        return projectors + share * (identity - projectors)
