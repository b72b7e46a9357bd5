"""Sketches: 128 bytes of every vector, scanned to find the few whose codes are worth reading.

Packed vectors have thousands of dimensions, but a few hundred principal directions hold most of what
tells two of them apart. A sketch is the vector in these directions, randomly rotated so that all
carry the same, and rounded to two bits each. To scan sketches takes a fraction of the time of the
index's own codes. They are not precise, so a search takes the best thousands by their sketches, and
the index scores these by its codes.

Inverted lists were tried instead: packed vectors hardly cluster, so that a search has to read a fifth
of all lists (``examples/benchmarks/README.md``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from ...errors import check_positive
from ...vectors.projection import principal_directions
from ...vectors.quantization import Bits, Codes, code_width
from ...vectors.ranking import top_k
from ...vectors.scan import scan
from . import Results, check_vectors, no_results
from .blob import read_blob, write_blob

_SAMPLE = 8192
_BITS: Bits = 2
_QUERY_BITS = 4  # as exact as more: errors of sketches are larger
_SPARE, _ROUNDS = 64, 1  # of the decomposition: directions need not be the best to the last digit
_ALIGNMENT = 64
_SCORES_BYTES = 64 << 20
_GROWN = 4  # times more documents than a small sample had deserve another one


@dataclass(frozen=True)
class SketchOptions:
    """How long sketches are, and how many documents a search takes by them.

    Parameters
    ----------
    directions
        Number of principal directions, a multiple of 256; a sketch has a quarter as many bytes.
    candidates
        Number of documents that are scored by their codes, at least 10 for each result. More of
        them find more, in more time. By default 20 times the square root of the number of documents.
    """

    of_searches: ClassVar[frozenset[str]] = frozenset({"candidates"})

    directions: int = 512
    candidates: int | None = None

    def __post_init__(self) -> None:
        check_positive(directions=self.directions)
        check_positive(or_none=True, candidates=self.candidates)
        if self.directions % 256:
            raise ValueError(f"directions must be a multiple of 256, got {self.directions}")


class SketchBackend:
    """Sketches of vectors, in the directions that were learnt from a sample."""

    options_type: ClassVar[type] = SketchOptions
    fewest: ClassVar[int] = 20_000

    def __init__(self, dim: int, size: int, options: SketchOptions) -> None:
        self.dim = dim
        self.options = options
        self._width = options.directions
        self._trained_on = 0
        self._mean = np.zeros(dim, np.float32)
        self._directions = Codes.encode(torch.zeros(0, dim), 8)
        self._decoded: Tensor | None = None  # the directions, while vectors are added
        self._parts = [(np.empty(0, np.int64), Codes.encode(torch.zeros(0, self._width), _BITS))]

    @classmethod
    def from_bytes(cls, data: NDArray[np.uint8], options: SketchOptions) -> Self:
        header, body = read_blob(data)
        dim, width, trained_on, n = (
            header[name] for name in ("dim", "width", "trained_on", "vectors")
        )
        if any(type(size) is not int or size < 0 for size in (dim, width, trained_on, n)):
            raise ValueError("its header has sizes that are no counts")  # compiled code trusts them
        self = cls(dim, 0, options)
        self._width, self._trained_on = width, trained_on
        rows = width if trained_on else 0
        arrays = _arrays(
            body,
            (np.float32, (self.dim,)),
            (np.uint8, (rows, self.dim)),
            (np.float32, (rows,)),
            (np.int64, (n,)),
            (np.uint8, (n, code_width(self._width, _BITS))),
            (np.float32, (n,)),
        )
        self._mean, values, scales, labels, sketches, lengths = arrays
        self._directions = Codes(values, scales, 8, self.dim)
        self._parts = [(labels, Codes(sketches, lengths, _BITS, self._width))]
        return self

    def to_bytes(self) -> NDArray[np.uint8]:
        labels, sketches = self._all()
        header = {
            "dim": self.dim,
            "width": self._width,
            "trained_on": self._trained_on,
            "vectors": len(self),
        }
        arrays = (
            self._mean,
            self._directions.values,
            self._directions.scales,
            labels,
            sketches.values,
            sketches.scales,
        )

        def save(stream: Any) -> None:
            for array in arrays:
                stream.write(np.ascontiguousarray(array).data)
                stream.write(b" " * (-array.nbytes % _ALIGNMENT))

        return write_blob(header, save)

    def __len__(self) -> int:
        return sum(len(labels) for labels, _ in self._parts)

    @property
    def sample_size(self) -> int:
        return 0 if self._trained_on else _SAMPLE

    def outgrown(self, size: int) -> bool:
        # Samples of many documents have at least half of the size that is asked for.
        return self._trained_on < _SAMPLE // 2 and size > _GROWN * self._trained_on

    def shortlist(self, k: int) -> int:
        return max(self.options.candidates or int(20 * math.sqrt(len(self))), 10 * k)

    def train(self, vectors: NDArray[np.float32]) -> None:
        sample = torch.from_numpy(check_vectors(vectors, self.dim))
        mean = sample.mean(0)
        directions = principal_directions(
            sample - mean, min(self._width, *sample.shape), spare=_SPARE, rounds=_ROUNDS
        )
        random = torch.randn(
            self._width, len(directions), generator=torch.Generator().manual_seed(0)
        )
        # Orthonormal columns: fewer directions than bits are spread over all of them.
        rotation = torch.linalg.qr(random).Q
        self._mean = mean.numpy()
        self._directions = Codes.encode(rotation @ directions, 8)
        self._trained_on = len(sample)

    def add(self, labels: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        centred = torch.from_numpy(check_vectors(vectors, self.dim) - self._mean)
        if not self._trained_on:
            raise ValueError("sketches must be trained before vectors can be added")
        if self._decoded is None:
            self._decoded = self._directions.decode()
        self._parts.append((labels, Codes.encode(centred @ self._decoded.mT, _BITS)))

    def search(self, queries: NDArray[np.float32], k: int) -> Results:
        vectors = torch.from_numpy(check_vectors(queries, self.dim))
        labels, products = no_results(len(vectors), k)
        if not len(self):
            return labels, products
        known, sketches = self._all()
        constants = vectors.numpy() @ self._mean
        step = max(1, _SCORES_BYTES // (4 * len(known)))
        for begin in range(0, len(vectors), step):
            part = vectors[begin : begin + step]
            directed = self._directions.approximate_scores(part).scores
            found, _ = scan(sketches.values, sketches.scales, _BITS, directed, _QUERY_BITS)
            for i, scores in enumerate(found, begin):
                best = top_k(scores, k)
                labels[i, : len(best)] = known[best]
                products[i, : len(best)] = scores[best] + constants[i]
        return labels, products

    def _all(self) -> tuple[NDArray[np.int64], Codes]:
        """Return all labels and sketches."""
        parts = self._parts
        if len(parts) > 1:
            labels = np.concatenate([labels for labels, _ in parts])
            values = np.concatenate([sketches.values for _, sketches in parts])
            scales = np.concatenate([sketches.scales for _, sketches in parts])
            self._parts = parts = [(labels, Codes(values, scales, _BITS, self._width))]
        return parts[0]


def _arrays(
    data: NDArray[np.uint8], *kinds: tuple[type, tuple[int, ...]]
) -> Iterator[NDArray[Any]]:
    """Yield the arrays of these types and shapes that data begins with, without a copy."""
    begin = 0
    for dtype, shape in kinds:
        array: NDArray[Any] = np.frombuffer(data, dtype, math.prod(shape), begin).reshape(shape)
        yield array
        begin += array.nbytes + -array.nbytes % _ALIGNMENT
