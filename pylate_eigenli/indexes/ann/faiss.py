"""Any index that faiss can make from a factory string, searched by inner product."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from ...errors import check_positive
from ..registry import library
from . import Results, check_vectors, no_results
from .blob import ByteStream, read_blob, write_blob

_FEW = 10_000
_SAMPLE = 10_000
_SAMPLE_PER_CENTROID = 40  # one more than faiss warns without


def default_factory(size: int) -> str:
    """Return the factory string for about this many vectors.

    Few vectors are compared exactly: a small sample is no basis for training. More vectors get a
    graph of 8-bit codes. Inverted lists are no default, because packed projectors hardly cluster: a
    search would have to read a quarter of all lists.
    """
    return "Flat" if size <= _FEW else "HNSW32,SQ8"


@dataclass(frozen=True)
class FaissOptions:
    """The kind of faiss index, and how it is searched.

    Parameters
    ----------
    factory
        A faiss index factory string, such as ``"Flat"``, ``"SQ8"``, ``"IVF256,PQ64"``,
        ``"HNSW32,SQ8"`` or ``"RaBitQ"``. By default ``"Flat"``, or ``"HNSW32,SQ8"`` for more than
        10 000 vectors.
    nprobe
        Number of inverted lists to read, for a factory string with ``IVF``. By default a quarter.
    ef_search
        Number of candidates for the results, for a factory string with ``HNSW``; at least k.
    """

    of_searches: ClassVar[frozenset[str]] = frozenset({"nprobe", "ef_search"})

    factory: str | None = None
    nprobe: int | None = None
    ef_search: int = 200

    def __post_init__(self) -> None:
        check_positive(or_none=True, nprobe=self.nprobe, ef_search=self.ef_search)


class FaissBackend:
    """Vectors in a faiss index."""

    options_type: ClassVar[type] = FaissOptions
    fewest: ClassVar[int] = 0

    def __init__(self, dim: int, size: int, options: FaissOptions) -> None:
        self.dim = dim
        self.options = options
        self._faiss = library("faiss")
        self._factory = default_factory(size) if options.factory is None else options.factory
        self._borrowed: NDArray[np.uint8] | None = None
        metric = self._faiss.METRIC_INNER_PRODUCT
        try:
            index = self._faiss.index_factory(dim, self._factory, metric)
        except RuntimeError as error:
            raise ValueError(
                f"faiss cannot make {self._factory!r} for {dim} dimensions: {_reason(error)}"
            ) from error
        self._use(index if self._keeps_labels(index) else self._faiss.IndexIDMap2(index))

    @classmethod
    def from_bytes(cls, data: NDArray[np.uint8], options: FaissOptions) -> Self:
        header, body = read_blob(data)
        self = cls(header["dim"], 0, replace(options, factory=header["factory"]))
        self.options = options
        # The index uses the bytes in place, so a mapped file is not read as a whole.
        self._borrowed = body
        faiss = self._faiss
        self._use(faiss.read_index(faiss.ZeroCopyIOReader(faiss.swig_ptr(body), len(body))))
        return self

    def to_bytes(self) -> NDArray[np.uint8]:
        faiss = self._faiss
        return write_blob(
            {"dim": self.dim, "factory": self._factory},
            lambda stream: faiss.write_index(self._index, faiss.PyCallbackIOWriter(stream.write)),
        )

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def sample_size(self) -> int:
        if self._index.is_trained:
            return 0
        lists = self._faiss.try_extract_index_ivf(self._index)
        return max(_SAMPLE, _SAMPLE_PER_CENTROID * (lists.nlist if lists else 0))

    def shortlist(self, k: int) -> int:
        return k

    def outgrown(self, size: int) -> bool:
        return self.options.factory is None and default_factory(size) != self._factory

    def train(self, vectors: NDArray[np.float32]) -> None:
        vectors = check_vectors(vectors, self.dim)
        self._own()
        try:
            self._index.train(vectors)
        except RuntimeError as error:
            raise ValueError(
                f"faiss cannot train {self._factory!r} on {len(vectors)} vectors: {_reason(error)}"
            ) from error

    def add(self, labels: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        vectors = check_vectors(vectors, self.dim)
        if not self._index.is_trained:
            raise ValueError(f"{self._factory!r} must be trained before vectors can be added")
        self._own()
        self._index.add_with_ids(vectors, labels)

    def search(self, queries: NDArray[np.float32], k: int) -> Results:
        queries = check_vectors(queries, self.dim)
        if not len(self) or not len(queries):
            return no_results(len(queries), k)
        # faiss stops at as many candidates even if it is asked for more results.
        self._set("efSearch", max(self.options.ef_search, k))
        products, labels = self._index.search(queries, k)
        products[labels < 0] = -np.inf
        return labels, products

    def _keeps_labels(self, index: Any) -> bool:
        """Return whether an index keeps labels; others number their vectors."""
        faiss = self._faiss
        index = faiss.downcast_index(index)
        if isinstance(index, faiss.IndexPreTransform):
            index = faiss.downcast_index(index.index)
        return isinstance(index, (faiss.IndexIVF, faiss.IndexIDMap))

    def _use(self, index: Any) -> None:
        self._index = index
        lists = self._faiss.try_extract_index_ivf(index)
        if lists:
            self._set("nprobe", self.options.nprobe or max(1, lists.nlist // 4))

    def _own(self) -> None:
        """Copy borrowed bytes before a change: faiss would end the process."""
        if self._borrowed is not None:
            reader = self._faiss.PyCallbackIOReader(ByteStream(self._borrowed).read)
            self._use(self._faiss.read_index(reader))
            self._borrowed = None

    def _set(self, parameter: str, value: int) -> None:
        """Set a parameter of the index, or of a part of it, if it exists."""
        with suppress(RuntimeError):
            self._faiss.ParameterSpace().set_index_parameter(self._index, parameter, value)


def _reason(error: RuntimeError) -> str:
    """Return the message of a faiss error without the place in its source."""
    return str(error).rpartition("failed: ")[2].strip()
