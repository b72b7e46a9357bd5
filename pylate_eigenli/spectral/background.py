"""The background of a collection, and its use in queries: spectral idf and subtraction.

The background G is the mean of the documents' matrices, which are projectors if the filter is hard.
v'Gv is the document frequency of a direction v: the share of the documents that hold it. G stays
exact while the collection changes: adding a document adds its matrix, removing it subtracts it.

Searches apply the background to queries only, in two ways:

*Spectral idf*
    Query tokens are multiplied by G^-a, so that directions which many documents hold count less.
*Background subtraction*
    The query's moment M_Q becomes M_Q - b tr(M_Q) G, with the idf applied to both and G scaled to
    trace 1. A document no longer gains from the part of its score that it would have for any
    query, so long documents with large subspaces lose their advantage.

With every token of a query, long documents gain more by their length alone. That they are relevant
more often is worth the same for all queries. So the share b grows with the evidence of the query,
the number r of its independent tokens: b = r / (r + e). Only standardised tokens can be counted like
that; others have too much in common.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..tokens import TokenBatch

_FLOOR = 1e-6  # share of the trace; bounds the idf of directions that no document holds
_USUAL_EVIDENCE = 9.0  # independent tokens of a query that loses exactly the given share


@dataclass(frozen=True)
class Queries:
    """Queries with spectral idf and background subtraction applied.

    ``plain`` has the original tokens, ``tokens`` those to compare with subspaces. The rows g_i of
    ``background`` (d, d) are subtracted: the moment of a query loses sum_i g_i g_i' times the mass of
    the query, sum_i |q_i|^2, times its share in ``shares`` (queries,).
    """

    plain: TokenBatch
    tokens: TokenBatch
    background: Tensor | None = None
    shares: Tensor | None = None

    def __len__(self) -> int:
        return len(self.plain)

    def highest_scores(self) -> NDArray[np.float64]:
        """Return the highest score that a document can have for each query. Shape: (queries,).

        It is the sum of the positive eigenvalues of the query's moment less the background: the
        matrix of a document has eigenvalues from 0 to 1. Without a background it is the mass of
        the query.
        """
        highest = []
        for query, tokens in enumerate(self.tokens):
            moment = tokens.double().mT @ tokens.double()
            background = self.background_of(query)
            if background is not None:
                rows = background.double()
                moment -= torch.trace(moment) * (rows.mT @ rows)
            highest.append(float(torch.linalg.eigvalsh(moment).clamp_min(0).sum()))
        return np.array(highest)

    def background_of(self, query: int) -> Tensor | None:
        """Return the rows that one query loses per unit of its mass; None without a background."""
        if self.background is None or self.shares is None:
            return None
        return self.background * self.shares[query].sqrt()

    def alone(self, part: slice) -> Queries:
        """Return a query for each of some tokens; its score is the contribution of the token."""
        plain, tokens = self.plain.tokens[part], self.tokens.tokens[part]
        offsets = np.arange(len(plain) + 1, dtype=np.int64)
        shares = None if self.shares is None else self.shares[self.tokens.owners[part]]
        return Queries(
            TokenBatch(plain, offsets), TokenBatch(tokens, offsets), self.background, shares
        )

    def chosen(self, queries: list[int]) -> Queries:
        """Return some of the queries."""
        shares = None if self.shares is None else self.shares[queries]
        return Queries(
            self.plain.chosen(queries), self.tokens.chosen(queries), self.background, shares
        )


@dataclass(frozen=True)
class QueryFilter:
    """Spectral idf and background subtraction for the queries of one collection.

    ``power`` is G^-a (d, d), None for the identity; see :class:`Queries` for ``background``. All
    queries lose the same share of the background, or, ``by_evidence``, each by its evidence.
    """

    power: Tensor | None = None
    background: Tensor | None = None
    share: float = 0.0
    by_evidence: bool = False

    def __call__(self, plain: TokenBatch, queries: TokenBatch) -> Queries:
        """Filter transformed queries, float32 on the CPU; ``plain`` are the original ones."""
        if self.power is not None:
            # One product per query, so that the rest of a batch does not change its last bits.
            weighed = torch.cat([query @ self.power for query in queries])
            queries = TokenBatch(weighed, queries.offsets)
        if self.background is None:
            return Queries(plain, queries)
        shares = torch.full((len(queries),), self.share)
        if self.by_evidence:
            # The smaller Gram matrix of a query has the traces of its moment. NumPy's products: for
            # small matrices those of torch mostly wait for threads.
            grams = (query.numpy() @ query.numpy().T for query in queries)
            parts = [shares_by_evidence(torch.from_numpy(gram)[None], self.share) for gram in grams]
            shares = torch.cat(parts)
        return Queries(plain, queries, self.background, shares)


@dataclass(frozen=True)
class Background:
    """Sum of the matrices of all documents of a collection.

    Parameters
    ----------
    total
        Shape: (d, d), float64, symmetric.
    documents
        Number of documents.

    Examples
    --------
    >>> import numpy as np
    >>> background = Background.empty(2).plus(np.diag([1.0, 0.0]), 1).plus(np.eye(2), 1)
    >>> background.mean
    array([[1. , 0. ],
           [0. , 0.5]])
    >>> background.minus(np.eye(2), 1).mean
    array([[1., 0.],
           [0., 0.]])
    """

    total: NDArray[np.float64]
    documents: int

    @classmethod
    def empty(cls, dim: int) -> Background:
        """Return the background of an empty collection."""
        return cls(np.zeros((dim, dim)), 0)

    def plus(self, matrices: NDArray[np.float64], documents: int) -> Background:
        """Add documents, given the sum of their matrices. Shape: (d, d)."""
        return Background(self.total + matrices, self.documents + documents)

    def minus(self, matrices: NDArray[np.float64] | float, documents: int) -> Background:
        """Remove documents, given the sum of their matrices. Shape: (d, d)."""
        if documents == self.documents:
            return Background.empty(len(self.total))  # exactly zero, without rounding errors
        return Background(self.total - matrices, self.documents - documents)

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean matrix of a document. Shape: (d, d)."""
        return self.total / max(self.documents, 1)

    def query_filter(self, idf: float, share: float, by_evidence: bool = False) -> QueryFilter:
        """Return the filter for the exponent a of the idf and the share b of the background.

        ``by_evidence``, b is the share of a usual query, and others lose more or less.
        """
        trace = float(np.trace(self.total))
        if (not idf and not share) or trace <= 0:
            return QueryFilter()
        values, vectors = np.linalg.eigh(self.total / trace)
        values = np.maximum(values, _FLOOR)
        power = background = None
        if idf:
            # The symmetric power keeps tokens in their own basis.
            power = torch.from_numpy((vectors * values**-idf) @ vectors.T).float()
        if share:
            left = values ** (1 - 2 * idf)
            rows = (vectors * np.sqrt(left / left.sum())).T
            background = torch.from_numpy(rows).float().contiguous()
        return QueryFilter(power, background, share, by_evidence)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Background:
        """Return a background from the manifest of an old index."""
        upper = np.frombuffer(base64.b64decode(data["total"]), "<f8")
        if 2 * len(upper) != data["dim"] * (data["dim"] + 1):
            raise ValueError(
                f"the background has {len(upper)} numbers for {data['dim']} dimensions"
            )
        total = np.zeros((data["dim"], data["dim"]))
        rows, columns = np.triu_indices(data["dim"])
        total[rows, columns] = total[columns, rows] = upper
        return cls(total, data["documents"])


def shares_by_evidence(moments: Tensor, share: float) -> Tensor:
    """Return the share of the background that each query loses, given the moments of their tokens.

    A query of nine independent tokens loses the given share, a shorter one less, a longer one more.
    tr(M)^2 / tr(M^2) counts independent tokens: n orthogonal tokens of equal length are n, and
    copies of a token, such as the mask tokens that fill up queries, are one.

    Examples
    --------
    >>> shares_by_evidence(torch.stack([torch.eye(9), 5 * torch.ones(9, 9)]), 0.75)
    tensor([0.7500, 0.2500])
    """
    tiny = torch.finfo(moments.dtype).tiny
    traces = moments.diagonal(dim1=-2, dim2=-1).sum(-1).clamp_min(tiny)
    # Divided by the traces first: the squares of large moments overflow.
    squares = (moments / traces[..., None, None]).square().sum((-1, -2)).clamp_min(tiny)
    return share / (share + (1 - share) * _USUAL_EVIDENCE * squares)


def matrix_sum(
    rows: Tensor, lengths: NDArray[np.int64], floors: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return the sum of documents' matrices (1 - floor) R'R + floor I.

    The rows R (n, d) of all documents are concatenated; lengths and floors are per document.
    """
    scale = torch.from_numpy(np.repeat(np.sqrt(1.0 - floors), lengths))
    # float64 keeps the total accurate over many additions and subtractions.
    scaled = rows.double() * scale[:, None]
    total: NDArray[np.float64] = (scaled.mT @ scaled).numpy()
    return total + float(floors.sum(dtype=np.float64)) * np.eye(rows.shape[1])
