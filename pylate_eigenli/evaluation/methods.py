"""Retrieval methods behind one interface, by name: compress the documents, score the queries.

:func:`method` understands ``full``, ``eigenli-32``, ``eigenli-sv-32``, ``plus-32``, ``kmeans-32``,
``ward-32`` (with any other budget), ``plus`` (one vector of all directions), ``muvera`` and
``muvera-centered``. Those made of subspaces take options: ``eigenli-32:filter=soft:idf=0.25``. To
add a method, enter it in ``FIXED`` or ``BUDGETED``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..scores.maxsim import maxsim_scores
from ..spectral.background import Background, matrix_sum
from ..spectral.background import Queries as PreparedQueries
from ..spectral.settings import PRESETS, SpectralSettings
from ..spectral.subspace import Subspaces
from ..tokens import TokenBatch
from ..vectors.axis_codes import AxisCodes
from ..vectors.encoder import Projections, SVSettings
from ..vectors.packing import pack_queries, pack_subspaces, packed_dim
from .baselines import Muvera, pool_kmeans, pool_ward

Documents = TypeVar("Documents")
Queries = TypeVar("Queries")

BYTES_PER_NUMBER = 2
"""Methods are charged for float16, in which EigenLI's index keeps its vectors by default; the
single vector alone for int8, in which its own index keeps it by default."""

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


@runtime_checkable
class RelativeMethod(Protocol):
    """A method whose queries may depend on what all documents have in common."""

    @property
    def is_relative(self) -> bool:
        """Whether they do."""

    def among(self, parts: Iterable[Any]) -> Method[Any, Any]:
        """Return the method for queries among the encoded documents of all parts."""


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
    settings
        How subspaces are made and queries meet them.
    background
        What all documents have in common, for settings with an idf or a background.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> eigenli = EigenLI("eigenli-1", SpectralSettings(k=1))
    >>> documents = eigenli.encode_documents(collect([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0]]]))
    >>> queries = eigenli.encode_queries(collect([[[0.6, 0.8]]], names="query"))
    >>> eigenli.scores(queries, documents).round(2)
    array([[0.36, 0.64]], dtype=float32)
    """

    name: str
    settings: SpectralSettings
    background: Background | None = None

    @property
    def is_relative(self) -> bool:
        return bool(self.settings.idf or self.settings.background)

    def among(self, parts: Iterable[Subspaces]) -> EigenLI:
        matrices = (
            (matrix_sum(part.rows.float().cpu(), part.ranks, part.floors.cpu().numpy()), len(part))
            for part in parts
        )
        return replace(self, background=_sum(matrices))

    def encode_documents(self, documents: TokenBatch) -> Subspaces:
        return self.settings.subspaces(documents)

    def encode_queries(self, queries: TokenBatch) -> NDArray[np.float32]:
        prepared = _prepared(queries, self.settings, self.background)
        packed: NDArray[np.float32] = pack_queries(prepared.tokens, prepared.against).numpy()
        return packed

    def scores(self, queries: NDArray[np.float32], documents: Subspaces) -> NDArray[np.float32]:
        rows, floors = documents.rows.float().cpu(), documents.floors.float().cpu().numpy()
        result = np.empty((len(queries), len(documents)), np.float32)
        for begin in range(0, len(documents), _PACKED_AT_ONCE):
            end = min(begin + _PACKED_AT_ONCE, len(documents))
            packed = pack_subspaces(
                rows, documents.offsets[begin : end + 1], floors[begin:end]
            ).numpy()
            np.matmul(queries, packed.T, out=result[:, begin:end])
        return result

    def nbytes_per_document(self, documents: Subspaces) -> float:
        return BYTES_PER_NUMBER * documents.bases.shape[1] * float(documents.ranks.mean())


@dataclass(frozen=True)
class EigenLISV:
    """Documents are one vector each at 8 bits per dimension, as in the single-vector index.

    Parameters
    ----------
    name, settings, background
        See :class:`EigenLI`.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> sv = EigenLISV("eigenli-sv-1", SVSettings(k=1))
    >>> documents = sv.encode_documents(collect([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0]]]))
    >>> queries = sv.encode_queries(collect([[[0.6, 0.8]]], names="query"))
    >>> sv.scores(queries, documents).round(2)
    array([[0.36, 0.64]], dtype=float32)
    >>> sv.nbytes_per_document(documents)  # d (d + 1) / 2 bytes and two floats
    11.0
    """

    name: str
    settings: SVSettings
    background: Background | None = None

    @property
    def is_relative(self) -> bool:
        return bool(self.settings.idf or self.settings.background)

    def among(self, parts: Iterable[AxisCodes]) -> EigenLISV:
        def matrices(part: AxisCodes) -> NDArray[np.float64]:
            projections = self._projections(part.codes.dim)
            return projections.matrix_sum(part.decode(projections.axis))

        return replace(self, background=_sum((matrices(part), len(part)) for part in parts))

    def _projections(self, width: int) -> Projections:
        """Return what centres vectors of a width on what no document has to be known for."""
        return Projections().centred_on(torch.zeros(0, width), self.settings)

    def encode_documents(self, documents: TokenBatch) -> AxisCodes:
        packed = Projections().packed(documents, self.settings)
        projections = self._projections(packed.shape[1])
        return AxisCodes.encode(projections.document_vectors(packed), 8, projections.axis)

    def encode_queries(self, queries: TokenBatch) -> tuple[Tensor, NDArray[np.float32]]:
        prepared = _prepared(queries, self.settings, self.background)
        return self._projections(packed_dim(queries.dim)).query_vectors(prepared)

    def scores(
        self, queries: tuple[Tensor, NDArray[np.float32]], documents: AxisCodes
    ) -> NDArray[np.float32]:
        vectors, constants = queries
        axis = self._projections(vectors.shape[1]).axis
        result: NDArray[np.float32] = documents.scores(vectors, axis) + constants[:, None]
        return result

    def nbytes_per_document(self, documents: AxisCodes) -> float:
        return float(documents.codes.values.shape[1] + 2 * documents.codes.scales.itemsize)


def _sum(matrices: Iterable[tuple[NDArray[np.float64], int]]) -> Background:
    """Return the background of documents, given sums of their matrices and their numbers."""
    background: Background | None = None
    for matrix, documents in matrices:
        background = (background or Background.empty(len(matrix))).plus(matrix, documents)
    if background is None:
        raise ValueError("there are no documents to search")
    return background


def _prepared(
    queries: TokenBatch, settings: SpectralSettings, background: Background | None
) -> PreparedQueries:
    tokens = TokenBatch(queries.tokens.float().cpu(), queries.offsets)
    comparable = settings.centred_queries(tokens)
    if background is None:
        return PreparedQueries(tokens, comparable)
    return background.query_filter(settings.idf, settings.background)(tokens, comparable)


def _muvera(name: str, centered: bool) -> SingleVector:
    encoder = Muvera(centered=centered)
    return SingleVector(name, encoder.encode_documents, encoder.encode_queries)


FIXED: dict[str, Callable[[str], Method[Any, Any]]] = {
    "full": MultiVector,
    "plus": lambda name: EigenLISV(name, SVSettings(**PRESETS["plus"])),
    "muvera": partial(_muvera, centered=False),
    "muvera-centered": partial(_muvera, centered=True),
}
"""Methods without a budget: what makes them of their name."""

BUDGETED: dict[str, Callable[[str, int], Method[Any, Any]]] = {
    "eigenli": lambda name, k: EigenLI(name, SpectralSettings(k=k)),
    "eigenli-sv": lambda name, k: EigenLISV(name, SVSettings(k=k)),
    "plus": lambda name, k: EigenLI(name, SpectralSettings(k=k, **PRESETS["plus"])),
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
    ValueError: unknown method 'ward': expected full, plus, muvera, muvera-centered, eigenli-<k>, eigenli-sv-<k>, plus-<k>, kmeans-<k> or ward-<k>
    """
    plain, _, options = name.partition(":")
    chosen = _by_name(plain)
    if not options:
        return chosen
    if not isinstance(chosen, (EigenLI, EigenLISV)):
        raise ValueError(f"{plain} takes no options, but got {options!r}")
    return replace(chosen, name=name, settings=_with_options(chosen.settings, options))


def _by_name(name: str) -> Method[Any, Any]:
    if name in FIXED:
        return FIXED[name](name)
    family, k = split_name(name)
    if k is not None and family in BUDGETED:
        return BUDGETED[family](name, k)
    *known, last = [*FIXED, *(f"{family}-<k>" for family in BUDGETED)]
    raise ValueError(f"unknown method {name!r}: expected {', '.join(known)} or {last}")


def _with_options(settings: Any, options: str) -> Any:
    """Return settings changed by options such as ``filter=soft:idf=0.25``."""
    changed = {}
    for option in options.split(":"):
        name, _, value = option.partition("=")
        if name not in _OPTIONS:
            raise ValueError(f"{option!r} is not one of the options {', '.join(_OPTIONS)}")
        try:
            changed[name] = _OPTIONS[name](value)
        except ValueError as error:
            raise ValueError(f"{option!r} needs a number") from error
    return replace(settings, **changed)


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "filter": str,
    "short_documents": str,
    "centering": str,
    "idf": float,
    "background": float,
}
