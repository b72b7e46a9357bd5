"""The method as it is defined, in float64 and without regard for speed: the tests' yardstick."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Matrix = NDArray[np.float64]


def unit_rows(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float32]:
    """Random token vectors of length 1. Shape: (n, d), float32."""
    x = rng.standard_normal((n, d))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def spectrum(tokens: Any) -> tuple[Matrix, Matrix]:
    """All eigenvalues of the second moment, descending, and the eigenvectors as rows."""
    x = np.asarray(tokens, np.float64)
    values, vectors = np.linalg.eigh(x.T @ x)
    return values[::-1], vectors[:, ::-1].T


def basis(tokens: Any, k: int) -> Matrix:
    """The k leading eigenvectors, as far as the document has so many independent tokens."""
    rank = int(np.linalg.matrix_rank(np.asarray(tokens, np.float64), rtol=1e-6))
    return spectrum(tokens)[1][: min(k, rank)]


def projector(tokens: Any, k: int) -> Matrix:
    """The projector on the span of the k leading eigenvectors."""
    w = basis(tokens, k)
    return w.T @ w


def score(query: Any, document: Any, k: int, short_documents: str = "fill") -> float:
    """The score of a query and a document, both given by their tokens."""
    q, w = np.asarray(query, np.float64), basis(document, k)
    inside = ((q @ w.T) ** 2).sum()
    if short_documents == "truncate" or len(w) == k:
        return float(inside)
    share = (k - len(w)) / (q.shape[1] - len(w))
    return float(inside + share * ((q**2).sum() - inside))


def maxsim(queries: Any, documents: Any) -> Tensor:
    """The MaxSim of padded queries and documents. Shape: (queries, documents)."""
    return torch.einsum("qid,njd->qnij", queries, documents).amax(-1).sum(-1)


def ranking(scores: Any, k: int) -> list[int]:
    """The positions of the k best scores, of equal ones the first."""
    return [int(i) for i in np.argsort(-np.asarray(scores), kind="stable")[:k]]
