"""The backends under test, and vectors for them."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from benchmarks import synthetic
from numpy.typing import NDArray

from pylate_eigenli import compress
from pylate_eigenli.indexes.ann import Backend, load, make
from pylate_eigenli.indexes.registry import BUILT_IN
from pylate_eigenli.tokens import collect
from pylate_eigenli.vectors.packing import pack_moments, pack_subspaces

N = 300
QUERIES = 20

Vectors = NDArray[np.float32]
Labels = NDArray[np.int64]


class Case(NamedTuple):
    """A backend with options and what can be expected of it.

    Parameters
    ----------
    name, options
        What :func:`pylate_eigenli.indexes.ann.make` takes.
    precision
        The largest error of an inner product, relative to the lengths of both vectors.
    candidates
        The number of results that nine of the ten best must be among.
    """

    name: str
    options: dict[str, Any]
    precision: float
    candidates: int = 10

    def __str__(self) -> str:
        return " ".join([self.name, *map(str, self.options.values())])

    @property
    def exact(self) -> bool:
        return self.options.get("factory") == "Flat"

    def make(self, dim: int, size: int = N) -> Backend:
        if self.name not in BUILT_IN:
            pytest.importorskip(self.name)
        return make(self.name, dim, size, self.options)

    def load(self, data: NDArray[np.uint8]) -> Backend:
        return load(self.name, data, self.options)

    def holding(self, vectors: Vectors, labels: Labels | None = None) -> Backend:
        """A backend with these vectors, numbered unless they have labels."""
        backend = self.make(vectors.shape[1], len(vectors))
        if backend.sample_size:
            backend.train(vectors)
        backend.add(np.arange(len(vectors)) if labels is None else labels, vectors)
        return backend


CASES = [
    Case("sketch", {}, 2e-1, candidates=100),
    Case("voyager", {"storage": "float32"}, 1e-5),
    Case("voyager", {"storage": "float8"}, 5e-3),
    Case("faiss", {"factory": "Flat"}, 1e-5),
    Case("faiss", {"factory": "SQ8"}, 2e-3),
    Case("faiss", {"factory": "SQ8,RFlat"}, 1e-5),
    Case("faiss", {"factory": "IVF16,SQ8", "nprobe": 16}, 2e-3),
    Case("faiss", {"factory": "HNSW16"}, 1e-5),
    Case("faiss", {"factory": "HNSW16,SQ8"}, 2e-3),
    Case("faiss", {"factory": "RaBitQ"}, 2e-1, candidates=100),
    Case("faiss", {"factory": "IVF4,RaBitQ", "nprobe": 4}, 2e-1, candidates=100),
]
every_backend = pytest.mark.parametrize("case", CASES, ids=str)


@cache
def packed_documents(seed: int = 0) -> Vectors:
    """Packed projectors of documents, all of one length. Shape: (N, 300)."""
    subspaces = compress(synthetic.documents(N, tokens=30, d=24, seed=seed), k=8)
    return pack_subspaces(subspaces.bases, subspaces.offsets, subspaces.floors.numpy()).numpy()


@cache
def packed_queries() -> Vectors:
    """Packed moments of queries. Shape: (QUERIES, 300)."""
    return pack_moments(collect(synthetic.queries(QUERIES, tokens=8, d=24))).numpy()


def best(queries: Vectors, vectors: Vectors, k: int) -> Labels:
    return np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :k]


def recall(found: Labels, true: Labels) -> float:
    """The share of true labels that were found, over all queries."""
    return float(np.mean([np.isin(t, f).mean() for f, t in zip(found, true, strict=True)]))
