"""Approximate nearest-neighbour (ANN) search, ours and that of libraries, behind one interface.

A backend finds the vectors with (nearly) the largest inner products, by integer labels. It lives in
memory and knows nothing of files, documents or tokens. It can be written to bytes, and rebuilt from
the vectors at any time: the index keeps the vectors themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from ..registry import options_of, type_of

Results = tuple[NDArray[np.int64], NDArray[np.float32]]


@runtime_checkable
class Backend(Protocol):
    """Vectors of dimension D that can be searched by inner product.

    ``size`` is the approximate number of vectors to come, on which defaults depend; ``options`` is
    an instance of ``options_type``, a dataclass.
    """

    options_type: ClassVar[type]
    fewest: ClassVar[int]  # documents below which a scan is as fast
    dim: int

    def __init__(self, dim: int, size: int, options: Any) -> None: ...

    @classmethod
    def from_bytes(cls, data: NDArray[np.uint8], options: Any) -> Self:
        """Return the backend that :meth:`to_bytes` has written, with these options.

        The data may be a mapped file. It must not change while the backend is in use.
        """

    def to_bytes(self) -> NDArray[np.uint8]:
        """Return the backend without its options. Shape: (bytes,)."""

    def __len__(self) -> int:
        """Return the number of vectors."""

    @property
    def sample_size(self) -> int:
        """Number of vectors to train on before any are added; 0 if there is no training."""

    def train(self, vectors: NDArray[np.float32]) -> None:
        """Train on a sample of the vectors. Shape: (n, D)."""

    def add(self, labels: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Add vectors (n, D).

        Labels (n,) are not negative, and larger than all earlier labels.
        """

    def search(self, queries: NDArray[np.float32], k: int) -> Results:
        """Return labels and inner products of the best k vectors for queries (m, D), best first.

        Both have the shape (m, k) and are filled up with -1 and -inf.
        """

    def shortlist(self, k: int) -> int:
        """Return how many vectors to search for, so that the best k are among them.

        More than k if products are less precise here than where the index scores the results.
        """

    def outgrown(self, size: int) -> bool:
        """Return whether a new backend for this number of vectors would be better than this one."""


def make(name: str, dim: int, size: int = 0, options: Mapping[str, Any] | None = None) -> Backend:
    """Return an empty backend; ``options`` are fields of its ``options_type``.

    Examples
    --------
    >>> import numpy as np
    >>> backend = make("faiss", dim=2, options={"factory": "Flat"})
    >>> backend.add(np.array([7, 8]), np.array([[1, 0], [0, 2]], np.float32))
    >>> labels, products = backend.search(np.array([[1, 1]], np.float32), k=3)
    >>> labels.tolist(), products.tolist()
    ([[8, 7, -1]], [[2.0, 1.0, -inf]])
    """
    backend: Backend = type_of(name)(dim, size, options_of(name, options))
    return backend


def load(name: str, data: NDArray[np.uint8], options: Mapping[str, Any] | None = None) -> Backend:
    """Return the backend that :meth:`Backend.to_bytes` has written."""
    backend: Backend = type_of(name).from_bytes(data, options_of(name, options))
    return backend


def check_vectors(vectors: NDArray[np.float32], dim: int) -> NDArray[np.float32]:
    """Return vectors (n, dim) as contiguous float32, which the libraries expect."""
    if vectors.ndim != 2 or vectors.shape[1] != dim:
        raise ValueError(f"vectors must have shape (n, {dim}), got {vectors.shape}")
    return np.ascontiguousarray(vectors, np.float32)


def no_results(queries: int, k: int) -> Results:
    """Return empty results: labels -1 and products -inf."""
    return np.full((queries, k), -1, np.int64), np.full((queries, k), -np.inf, np.float32)
