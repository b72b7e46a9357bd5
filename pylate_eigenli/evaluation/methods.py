"""Retrieval methods behind one interface, by name: compress the documents, score the queries.

:func:`method` understands ``full``, ``eigenli-32``, ``kmeans-32``, ``ward-32`` (with any other
budget), ``eigenli-sv-32``, ``muvera`` and ``muvera-centered``. To add one, enter it in ``FIXED`` or ``BUDGETED``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..baselines import Muvera, maxsim_scores, pool_kmeans, pool_ward
from ..codes import Codes
from ..subspace import ShortDocuments, Subspaces, subspaces_of
from ..sv_encoding import Projections, SVSettings
from ..tokens import TokenBatch
from ..vectors import pack_moments, pack_subspaces

Documents = TypeVar("Documents")
Queries = TypeVar("Queries")

BYTES_PER_NUMBER = 2
"""Methods are charged for float16, in which EigenLI's index keeps its vectors by default; the single
vector alone for int8, in which its own index keeps it by default."""

_PACKED_AT_ONCE = 1024  # documents; their packed projectors take 32 MB for d = 128


@runtime_checkable
class Method(Protocol[Queries, Documents]):
    """A way to represent documents and queries and to score the ones against the others.

    A document's representation depends on nothing but the document, so a corpus may be encoded
    and scored in parts.
    """

    @property
    def name(self) -> str:
        """What :func:`method` calls it."""

    def encode_documents(self, documents: TokenBatch) -> Documents:
        """Compress documents to what would be kept in an index."""

    def encode_queries(self, queries: TokenBatch) -> Queries:
        """Prepare queries for scoring."""

    def scores(self, queries: Queries, documents: Documents) -> NDArray[np.float32]:
        """Score every query against every document. Shape: (queries, documents)."""

    def nbytes_per_document(self, documents: Documents) -> float:
        """Return what an encoded document takes on average, see ``BYTES_PER_NUMBER``."""


@dataclass(frozen=True)
class MultiVector:
    """Documents are some vectors each, scored by MaxSim.

    Parameters
    ----------
    name
        See :class:`Method`.
    pool
        What makes the vectors to be kept of the tokens. By default they are all kept.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> ward = MultiVector("ward-1", partial(pool_ward, k=1))
    >>> documents = ward.encode_documents(collect([[[1.0, 0.0], [0.28, 0.96]], [[0.0, 1.0]]]))
    >>> queries = ward.encode_queries(collect([[[1.0, 0.0]]], names="query"))
    >>> ward.scores(queries, documents).round(2)
    array([[0.8, 0. ]], dtype=float32)
    """

    name: str
    pool: Callable[[TokenBatch], TokenBatch] | None = None

    def encode_documents(self, documents: TokenBatch) -> TokenBatch:
        return documents if self.pool is None else self.pool(documents)

    def encode_queries(self, queries: TokenBatch) -> TokenBatch:
        return queries

    def scores(self, queries: TokenBatch, documents: TokenBatch) -> NDArray[np.float32]:
        return maxsim_scores(queries, documents)

    def nbytes_per_document(self, documents: TokenBatch) -> float:
        return BYTES_PER_NUMBER * documents.dim * float(documents.lengths.mean())


@dataclass(frozen=True)
class SingleVector:
    """Documents and queries are one vector each, scored by their inner product.

    Parameters
    ----------
    name
        See :class:`Method`.
    documents, queries
        What makes of tokens the vectors. Shape of the result: (items, dimension), float32.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> muvera = SingleVector("muvera", Muvera().encode_documents, Muvera().encode_queries)
    >>> muvera.nbytes_per_document(muvera.encode_documents(collect([np.eye(16)])))
    20480.0
    """

    name: str
    documents: Callable[[TokenBatch], NDArray[np.float32]]
    queries: Callable[[TokenBatch], NDArray[np.float32]]

    def encode_documents(self, documents: TokenBatch) -> NDArray[np.float32]:
        return self.documents(documents)

    def encode_queries(self, queries: TokenBatch) -> NDArray[np.float32]:
        return self.queries(queries)

    def scores(
        self, queries: NDArray[np.float32], documents: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        result: NDArray[np.float32] = queries @ documents.T
        return result

    def nbytes_per_document(self, documents: NDArray[np.float32]) -> float:
        return float(BYTES_PER_NUMBER * documents.shape[1])


@dataclass(frozen=True)
class EigenLI:
    """Documents are subspaces, scored by how much of the query lies in them.

    Parameters
    ----------
    name
        See :class:`Method`.
    k
        Number of directions per document.
    short_documents
        See :func:`pylate_eigenli.compress`.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> eigenli = EigenLI("eigenli-1", k=1)
    >>> documents = eigenli.encode_documents(collect([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0]]]))
    >>> queries = eigenli.encode_queries(collect([[[0.6, 0.8]]], names="query"))
    >>> eigenli.scores(queries, documents).round(2)
    array([[0.36, 0.64]], dtype=float32)
    """

    name: str
    k: int
    short_documents: ShortDocuments = "fill"

    def encode_documents(self, documents: TokenBatch) -> Subspaces:
        return subspaces_of(documents, self.k, self.short_documents)

    def encode_queries(self, queries: TokenBatch) -> NDArray[np.float32]:
        packed: NDArray[np.float32] = pack_moments(queries).float().cpu().numpy()
        return packed

    def scores(self, queries: NDArray[np.float32], documents: Subspaces) -> NDArray[np.float32]:
        bases, floors = documents.bases.float().cpu(), documents.floors.float().cpu().numpy()
        result = np.empty((len(queries), len(documents)), np.float32)
        for begin in range(0, len(documents), _PACKED_AT_ONCE):
            end = min(begin + _PACKED_AT_ONCE, len(documents))
            packed = pack_subspaces(
                bases, documents.offsets[begin : end + 1], floors[begin:end]
            ).numpy()
            np.matmul(queries, packed.T, out=result[:, begin:end])
        return result

    def nbytes_per_document(self, documents: Subspaces) -> float:
        return BYTES_PER_NUMBER * documents.bases.shape[1] * float(documents.ranks.mean())


@dataclass(frozen=True)
class EigenLISV:
    """Documents are one vector each, at int8 as :class:`pylate_eigenli.EigenLISVIndex` keeps them.

    Parameters
    ----------
    name
        See :class:`Method`.
    k
        Number of directions per document.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> sv = EigenLISV("eigenli-sv-1", k=1)
    >>> documents = sv.encode_documents(collect([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0]]]))
    >>> queries = sv.encode_queries(collect([[[0.6, 0.8]]], names="query"))
    >>> sv.scores(queries, documents).round(2)
    array([[0.36, 0.64]], dtype=float32)
    >>> sv.nbytes_per_document(documents)  # d (d + 1) / 2 bytes and a scale
    7.0
    """

    name: str
    k: int

    def encode_documents(self, documents: TokenBatch) -> Codes:
        whole = Projections(None, None)
        subspaces = whole.subspaces(documents, SVSettings(k=self.k))
        return Codes.encode(whole.document_vectors(subspaces, self.k), bits=8)

    def encode_queries(self, queries: TokenBatch) -> tuple[Tensor, NDArray[np.float32]]:
        return Projections(None, None).query_vectors(queries, self.k)

    def scores(
        self, queries: tuple[Tensor, NDArray[np.float32]], documents: Codes
    ) -> NDArray[np.float32]:
        vectors, constants = queries
        result: NDArray[np.float32] = documents.scores(vectors) + constants[:, None]
        return result

    def nbytes_per_document(self, documents: Codes) -> float:
        return float(documents.values.shape[1] + documents.scales.itemsize)


def _muvera(name: str, centered: bool) -> SingleVector:
    encoder = Muvera(centered=centered)
    return SingleVector(name, encoder.encode_documents, encoder.encode_queries)


FIXED: dict[str, Callable[[str], Method[Any, Any]]] = {
    "full": MultiVector,
    "muvera": partial(_muvera, centered=False),
    "muvera-centered": partial(_muvera, centered=True),
}
"""Methods without a budget: what makes them of their name."""

BUDGETED: dict[str, Callable[[str, int], Method[Any, Any]]] = {
    "eigenli": EigenLI,
    "eigenli-sv": EigenLISV,
    "kmeans": lambda name, k: MultiVector(name, partial(pool_kmeans, k=k)),
    "ward": lambda name, k: MultiVector(name, partial(pool_ward, k=k)),
}
"""Methods with a budget of k vectors per document: what makes them of ``<key>-<k>`` and k."""


def split_name(name: str) -> tuple[str, int | None]:
    """Return the family and the budget, if any, that a name tells.

    Examples
    --------
    >>> split_name("eigenli-sv-32"), split_name("muvera-centered")
    (('eigenli-sv', 32), ('muvera-centered', None))
    """
    budgeted = re.fullmatch(r"(.+)-([1-9][0-9]*)", name)
    return (budgeted[1], int(budgeted[2])) if budgeted else (name, None)


def method(name: str) -> Method[Any, Any]:
    """Return the method of a name.

    Examples
    --------
    >>> method("ward-8").name
    'ward-8'
    >>> method("ward")
    Traceback (most recent call last):
        ...
    ValueError: unknown method 'ward': expected full, muvera, muvera-centered, eigenli-<k>, eigenli-sv-<k>, kmeans-<k> or ward-<k>
    """
    if name in FIXED:
        return FIXED[name](name)
    family, k = split_name(name)
    if k is not None and family in BUDGETED:
        return BUDGETED[family](name, k)
    *known, last = [*FIXED, *(f"{family}-<k>" for family in BUDGETED)]
    raise ValueError(f"unknown method {name!r}: expected {', '.join(known)} or {last}")
