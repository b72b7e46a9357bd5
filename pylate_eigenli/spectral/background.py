"""What all documents have in common, and queries told apart from it.

The background of a collection is the mean G of its documents' matrices (projectors, if the filter
is hard): v'Gv is the share of the documents that hold the direction v, a document frequency. It
changes with the collection, exactly: the matrix of a document that is added is added, that of one
that is removed is subtracted.

It is used on queries only, at search time, in two ways:

*Spectral idf*
    Query tokens are multiplied by G^-a: directions that every document holds count less.
*Background subtraction*
    The query's moment M_Q is replaced by M_Q - b tr(M_Q) G (both with the idf applied, G of trace
    1), so that a document gets no credit for what it would catch of any query: documents of
    large subspaces, the long ones, no longer win for being large.
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

_FLOOR = 1e-6  # of the trace: directions that no document holds must not count without bound


@dataclass(frozen=True)
class Queries:
    """Queries as they meet documents.

    Parameters
    ----------
    plain
        The tokens as they were given.
    tokens
        The tokens to compare with subspaces.
    against
        Rows g_i such that sum_i g_i g_i', times a query's mass sum_i |q_i|^2, is subtracted from
        its moment; None for nothing. Shape: (d, d), float32.
    """

    plain: TokenBatch
    tokens: TokenBatch
    against: Tensor | None = None

    def __len__(self) -> int:
        return len(self.plain)


@dataclass(frozen=True)
class QueryFilter:
    """Spectral idf and background subtraction, for queries among certain documents.

    Parameters
    ----------
    power
        G^-a, None for the identity. Shape: (d, d), float32.
    against
        See :class:`Queries`.
    """

    power: Tensor | None = None
    against: Tensor | None = None

    def __call__(self, plain: TokenBatch, queries: TokenBatch) -> Queries:
        """Apply to queries.

        Parameters
        ----------
        plain
            The queries as they were given.
        queries
            The tokens that are compared with subspaces, in float32 on the CPU.
        """
        if self.power is not None:
            # One by one: a query's last bits must not depend on those beside it.
            weighed = torch.cat([query @ self.power for query in queries])
            queries = TokenBatch(weighed, queries.offsets)
        return Queries(plain, queries, self.against)


@dataclass(frozen=True)
class Background:
    """Sum of the matrices of all documents of a collection.

    Parameters
    ----------
    total
        Shape: (d, d), float64, symmetric.
    documents
        Their number.

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
        """Return the background of no documents."""
        return cls(np.zeros((dim, dim)), 0)

    def plus(self, matrices: NDArray[np.float64], documents: int) -> Background:
        """Return the background with more documents, given the sum of their matrices (d, d)."""
        return Background(self.total + matrices, self.documents + documents)

    def minus(self, matrices: NDArray[np.float64] | float, documents: int) -> Background:
        """Return the background without some of its documents."""
        if documents == self.documents:
            return Background.empty(len(self.total))  # without what rounding would leave
        return Background(self.total - matrices, self.documents - documents)

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean matrix of a document. Shape: (d, d)."""
        return self.total / max(self.documents, 1)

    def query_filter(self, idf: float, background: float) -> QueryFilter:
        """Return what does spectral idf and background subtraction.

        Parameters
        ----------
        idf
            The exponent a; 0 for none.
        background
            The share b; 0 for none.
        """
        trace = float(np.trace(self.total))
        if (not idf and not background) or trace <= 0:
            return QueryFilter()
        values, vectors = np.linalg.eigh(self.total / trace)
        values = np.maximum(values, _FLOOR)
        power = rows = None
        if idf:
            # Symmetric, so that tokens stay in their own basis.
            power = torch.from_numpy((vectors * values**-idf) @ vectors.T).float()
        if background:
            left = values ** (1 - 2 * idf)
            rows = (vectors * np.sqrt(background * left / left.sum())).T
        return QueryFilter(
            power, None if rows is None else torch.from_numpy(rows).float().contiguous()
        )

    def to_json(self) -> dict[str, Any]:
        """Return the background as JSON values, to the last bit."""
        upper = self.total[np.triu_indices(len(self.total))].astype("<f8")
        return {
            "dim": len(self.total),
            "documents": self.documents,
            "total": base64.b64encode(upper.tobytes()).decode("ascii"),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Background:
        """Return what :meth:`to_json` has written."""
        total = np.zeros((data["dim"], data["dim"]))
        rows, columns = np.triu_indices(data["dim"])
        upper = np.frombuffer(base64.b64decode(data["total"]), "<f8")
        total[rows, columns] = total[columns, rows] = upper
        return cls(total, data["documents"])


def matrix_sum(
    rows: Tensor, lengths: NDArray[np.int64], floors: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return the sum of documents' matrices (1 - floor) R'R + floor I.

    Parameters
    ----------
    rows
        Of all documents, one after the other. Shape: (n, d), float32.
    lengths, floors
        Number of rows, and floor, of each document. Shape: (documents,).
    """
    scale = torch.from_numpy(np.repeat(np.sqrt(1.0 - floors), lengths))
    # In float64, so that what was added with some documents can be subtracted with others.
    scaled = rows.double() * scale[:, None]
    total: NDArray[np.float64] = (scaled.mT @ scaled).numpy()
    return total + float(floors.sum(dtype=np.float64)) * np.eye(rows.shape[1])
