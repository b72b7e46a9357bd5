"""HNSW graphs by Voyager, with one byte per dimension or float32.

Voyager's inner-product space and its small number types do not suit packed vectors, so this module
changes the vectors before Voyager sees them:

- ``Float8`` holds the multiples of 1/127 up to 1 and truncates numbers in between. Vectors are scaled
  to fit, and half a step is added, so that Voyager rounds instead.
- The cosine space normalises vectors before it stores them. With thousands of dimensions nearly all
  entries are then below the resolution of one byte, so this space is not used.
- The inner-product space lengthens every vector, along one more dimension, to the longest so far.
  The nearest neighbour is then the vector with the largest inner product, but the graph suffers: all
  short vectors become neighbours of each other, and a search does not reach the long ones, which have
  the large inner products. (For packed projectors of short documents, a search missed up to half of
  the best ten.) So this module gives all vectors the same length: each gets random numbers of its own
  in some further dimensions. These are nearly orthogonal, so inner products hardly change, and
  Voyager has nothing to lengthen.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import Self

from ...errors import check_choice, check_positive
from ..registry import library
from . import Results, check_vectors, no_results
from .blob import ByteStream, read_blob, write_blob

Storage = Literal["float32", "float8"]


class _Number(NamedTuple):
    """Voyager's name of a storage type, and how vectors are scaled to fit it.

    The scale puts the first vectors below ``limit`` by a factor of ``headroom``: their largest entry
    if the type has constant steps, which need little headroom, and otherwise their length.
    """

    name: str
    limit: float
    headroom: float


_NUMBERS: dict[Storage, _Number] = {
    "float32": _Number("Float32", 1024, 16),  # a distance is 1 - x'y: no use if x'y is tiny
    "float8": _Number("Float8", 1, 1.25),
}
_FLOAT8_STEP = 1 / 127
_PADDING = 256  # random vectors of that many dimensions have inner products of about 1/16
_MANY = 100_000
# Voyager counts the numbers of one call in 32 bits; far below that, copies stay small.
_BYTES_AT_ONCE = 64 << 20


@dataclass(frozen=True)
class VoyagerOptions:
    """How a graph is built and searched.

    Parameters
    ----------
    storage
        ``"float8"``, one byte per dimension, or ``"float32"``.
    M
        Number of neighbours of a vector in the graph, twice as many in its lowest layer. By
        default 16, or 32 for more than 100 000 vectors.
    ef_construction
        Number of candidates for the neighbours of a new vector.
    ef_search
        Number of candidates for the results, at least k.
    """

    of_searches: ClassVar[frozenset[str]] = frozenset({"ef_search"})

    storage: Storage = "float8"
    M: int | None = None
    ef_construction: int = 100
    ef_search: int = 200

    def __post_init__(self) -> None:
        check_choice("storage", self.storage, tuple(_NUMBERS))
        if self.M == 1:
            raise ValueError("M must be at least 2, got 1")
        check_positive(ef_construction=self.ef_construction, ef_search=self.ef_search)
        check_positive(or_none=True, M=self.M)


class VoyagerBackend:
    """Vectors in a Voyager graph."""

    options_type: ClassVar[type] = VoyagerOptions
    fewest: ClassVar[int] = 0
    sample_size = 0

    def __init__(self, dim: int, size: int, options: VoyagerOptions) -> None:
        self.dim = dim
        self.options = options
        self._voyager = library("voyager")
        self._M = options.M or (16 if size <= _MANY else 32)
        self._storage = options.storage
        self._graph: Any = None  # made with the first vectors, which set the scale
        self._scale = 1.0
        self._longest = 0.0  # square of the largest length so far, scaled

    @classmethod
    def from_bytes(cls, data: NDArray[np.uint8], options: VoyagerOptions) -> Self:
        header, body = read_blob(data)
        self = cls(header["dim"], 0, options)
        self._M, self._storage = header["M"], header["storage"]
        self._scale, self._longest = header["scale"], header["longest"]
        # Voyager cannot read an empty graph. A stream without seek skips its checks of every
        # vector; the storage has checked the bytes already.
        if len(body):
            self._graph = self._voyager.Index.load(ByteStream(body))
        return self

    def to_bytes(self) -> NDArray[np.uint8]:
        header = {
            "dim": self.dim,
            "M": self._M,
            "storage": self._storage,
            "scale": self._scale,
            "longest": self._longest,
        }
        return write_blob(header, self._graph.save if len(self) else lambda stream: None)

    def __len__(self) -> int:
        return 0 if self._graph is None else int(self._graph.num_elements)

    def train(self, vectors: NDArray[np.float32]) -> None:
        check_vectors(vectors, self.dim)

    def shortlist(self, k: int) -> int:
        return k

    def outgrown(self, size: int) -> bool:
        return False

    def add(self, labels: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        vectors = check_vectors(vectors, self.dim)
        if not len(vectors):
            return
        sizes = np.abs(vectors) if self._storage == "float8" else np.sqrt(_squares(vectors))
        largest = float(sizes.max())
        if self._graph is None:
            self._start(largest)
        elif self._scale * largest > self._number.limit:
            self._remake(largest)
        self._insert(labels, vectors)

    def _start(self, largest: float) -> None:
        """Make an empty graph for vectors of about this size."""
        number = self._number
        self._scale = number.limit / (number.headroom * largest) if largest > 0 else 1.0
        self._longest = 0.0
        self._graph = self._voyager.Index(
            self._voyager.Space.InnerProduct,
            self.dim + _PADDING,
            M=self._M,
            ef_construction=self.options.ef_construction,
            storage_data_type=getattr(self._voyager.StorageDataType, number.name),
        )

    def _remake(self, largest: float) -> None:
        """Rebuild the graph so that vectors of this size fit."""
        old = copy(self)
        self._start(largest)
        for labels, vectors in old._stored():
            self._insert(labels, vectors)

    def _insert(self, labels: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        random = np.random.default_rng(self._graph.num_elements)
        for part in self._parts(len(vectors)):
            scaled = vectors[part] * np.float32(self._scale)
            squares = _squares(scaled)
            self._longest = max(self._longest, float(squares.max()))
            signs = random.choice(np.array([-1, 1], np.float32), (len(scaled), _PADDING))
            missing = np.sqrt((self._longest - squares) / _PADDING)
            self._graph.add_items(
                self._rounded(scaled, signs * missing[:, None]),
                labels[part].tolist(),
                num_threads=torch.get_num_threads(),
            )

    def search(self, queries: NDArray[np.float32], k: int) -> Results:
        queries = check_vectors(queries, self.dim)
        labels, products = no_results(len(queries), k)
        found = min(k, len(self))  # Voyager raises an error if it holds fewer
        if not found:
            return labels, products
        for part in self._parts(len(queries)):
            labels[part, :found], products[part, :found] = self._find(queries[part], found)
        return labels, products

    def _find(self, queries: NDArray[np.float32], k: int) -> Results:
        # Queries are rounded like vectors, each with its own scale.
        largest = np.abs(queries).max(axis=1, keepdims=True)
        scales = np.float32(self._number.limit) / np.where(largest > 0, largest, np.float32(1))
        padding = np.zeros((len(queries), _PADDING), np.float32)
        try:
            labels, distances = self._graph.query(
                self._rounded(queries * scales, padding),
                k=k,
                num_threads=torch.get_num_threads(),
                query_ef=max(k, min(self.options.ef_search, len(self))),
            )
        except self._voyager.RecallError:
            # The graph does not connect all vectors, for instance if many are equal.
            return self._scan(queries, k)
        return labels.astype(np.int64), (1 - distances) / (scales * np.float32(self._scale))

    def _scan(self, queries: NDArray[np.float32], k: int) -> Results:
        """Compare queries with all vectors."""
        best_labels, best = no_results(len(queries), k)
        for labels, vectors in self._stored():
            products = np.concatenate([best, queries @ vectors.T], axis=1)
            candidates = np.broadcast_to(labels, (len(queries), len(labels)))
            candidates = np.concatenate([best_labels, candidates], axis=1)
            order = np.argsort(-products, axis=1, kind="stable")[:, :k]
            best = np.take_along_axis(products, order, axis=1)
            best_labels = np.take_along_axis(candidates, order, axis=1)
        return best_labels, best

    @property
    def _number(self) -> _Number:
        return _NUMBERS[self._storage]

    def _parts(self, n: int) -> Iterator[slice]:
        step = max(1, _BYTES_AT_ONCE // (4 * (self.dim + _PADDING)))
        return (slice(begin, begin + step) for begin in range(0, n, step))

    def _rounded(
        self, scaled: NDArray[np.float32], padding: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return rows that Voyager rounds to the nearest values of the storage type."""
        rows = np.concatenate([scaled, padding], axis=1)
        if self._storage == "float8":
            rows += np.copysign(np.float32(_FLOAT8_STEP / 2), rows)
            np.clip(rows, -1, 1, out=rows)
        return rows

    def _stored(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Yield the labels and vectors of the graph in batches."""
        graph, scale = self._graph, np.float32(self._scale)
        labels = np.fromiter(graph.ids, np.int64)
        for part in self._parts(len(labels)):
            vectors = graph.get_vectors(labels[part].tolist())[:, : self.dim]
            yield labels[part], vectors / scale


def _squares(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return squared lengths without a copy of the vectors. Shape: (n,)."""
    return np.asarray(np.einsum("ij,ij->i", vectors, vectors))
