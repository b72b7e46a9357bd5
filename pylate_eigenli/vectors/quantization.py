"""Vectors at the precision of a dtype: rounded, scored against float queries, and read back.

Floats are kept as they are. A code is D small unsigned integers u and one scale: x_i is about
(u_i - middle) scale, where middle is half the largest integer. With 8 / bits integers to a byte,
that is D, D / 2, D / 4 or D / 8 bytes for 8, 4, 2 or 1 bit. Queries stay in floating point, so only
the documents' rounding costs::

    <q, x>  ~  scale * (sum_i q_i u_i  -  middle * sum_i q_i)

The integers of a byte are not neighbours but D' = ceil(D bits / 8) dimensions apart: byte i of a
row holds the dimensions i, D' + i, 2 D' + i ... A scan then reads runs of bytes against runs of
query components and needs no shuffling, which is what makes it fast.

The part of a vector along an *axis*, the direction of the vectors' mean, is kept apart as one float.
Documents differ in how much of it they have, by their length for instance, and in a code of few bits
that difference would drown everything else. So would errors in what all queries read: the row of the
mean token is kept apart as well, at 8 bits (:mod:`pylate_eigenli.vectors.mean_row`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..spectral.kernels.compiled import reordered
from ..spectral.kernels.threads import for_ranges
from .mean_row import MeanRow
from .scan import scan

Bits = Literal[1, 2, 4, 8]
VectorDtype = Literal["float32", "float16", "int8", "int4", "int2", "binary"]
VECTOR_DTYPES: tuple[VectorDtype, ...] = get_args(VectorDtype)

_BITS: dict[str, Bits] = {"int8": 8, "int4": 4, "int2": 2, "binary": 1}
_FLOAT_BLOCK_BYTES = 32 << 20  # large enough that starting the threads costs nothing
# The step of a quantiser with the least error for a normal variable, in deviations.
_BEST_STEP = {2: 0.9957, 4: 0.3352}


@reordered
def _nearest_step(row: Any, step: float) -> tuple[float, float]:
    """Return the step near a given one whose 2-bit code has the smallest angle with row (D,).

    Also the scale that makes the projection of the row onto the code exact. Real vectors have
    longer tails than normal ones, so that no fixed step is best.
    """
    best, chosen, scale = -1.0, 0.0, 0.0
    absolute, square = 0.0, 0.0
    for i in range(row.shape[0]):
        absolute += abs(row[i])
        square += row[i] * row[i]
    for tenths in range(6, 17):
        tried = np.float32(step * tenths / 10)
        beyond, count = np.float32(0), 0
        for i in range(row.shape[0]):
            value = abs(row[i])
            beyond += value if value >= tried else np.float32(0)
            count += 1 if value >= tried else 0
        product = absolute / 2 + beyond  # with levels of 1/2, and 3/2 beyond the step
        cosine = product / math.sqrt(row.shape[0] / 4 + 2 * count)
        if cosine > best:
            best, chosen, scale = cosine, float(tried), square / product
    return chosen, scale


@reordered
def _encode(x: Any, bits: int, best_step: float, codes: Any, scales: Any) -> None:
    """Round the rows of x (n, D); 8 bits span the largest entry, fewer the bulk of them."""
    planes = 8 // bits
    top = (1 << bits) - 1
    middle = np.float32(top / 2)
    width = codes.shape[1]
    for n in range(x.shape[0]):
        row, code = x[n], codes[n]
        largest, absolute, square = np.float32(0), 0.0, 0.0
        for i in range(row.shape[0]):
            value = abs(row[i])
            largest = max(largest, value)
            absolute += value
            square += value * value
        if bits == 1:
            # The length of x along its own signs: the projection onto the code is then exact.
            scale = np.float32(2 * square / absolute) if absolute > 0 else np.float32(0)
        else:
            scale = largest / middle
            if best_step > 0:
                scale = min(scale, np.float32(best_step * math.sqrt(square / row.shape[0])))
        scales[n] = scale
        if bits == 2 and scale > 0:
            chosen, exact = _nearest_step(row, best_step * math.sqrt(square / row.shape[0]))
            scale, scales[n] = np.float32(chosen), np.float32(exact)
        inverse = np.float32(1) / scale if scale > 0 else np.float32(0)
        code[:] = 0
        for plane in range(planes):
            begin = plane * width
            part = row[begin : min(begin + width, row.shape[0])]
            for i in range(part.shape[0]):
                level = min(max(part[i] * inverse + middle + np.float32(0.5), 0), np.float32(top))
                code[i] |= np.uint8(np.uint8(level) << np.uint8(plane * bits))


@reordered
def _decode(codes: Any, scales: Any, bits: int, out: Any) -> None:
    planes = 8 // bits
    mask = np.uint8((1 << bits) - 1)
    middle = np.float32(((1 << bits) - 1) / 2)
    width = codes.shape[1]
    for n in range(codes.shape[0]):
        row, code, scale = out[n], codes[n], scales[n]
        for plane in range(planes):
            begin = plane * width
            part = row[begin : min(begin + width, row.shape[0])]
            shift = np.uint8(plane * bits)
            for i in range(part.shape[0]):
                part[i] = scale * (np.float32((code[i] >> shift) & mask) - middle)


@reordered
def _scan(codes: Any, scales: Any, bits: int, query: Any, out: Any) -> None:
    """Write the inner products of all rows with one query, padded to whole planes, to out."""
    planes = 8 // bits
    mask = np.uint8((1 << bits) - 1)
    middle = np.float32(((1 << bits) - 1) / 2)
    width = codes.shape[1]
    constant = np.float32(0)
    for i in range(query.shape[0]):
        constant += middle * query[i]
    for n in range(codes.shape[0]):
        code = codes[n]
        total = np.float32(0)
        for plane in range(planes):
            part = query[plane * width : (plane + 1) * width]
            shift = np.uint8(plane * bits)
            for i in range(code.shape[0]):
                total += np.float32((code[i] >> shift) & mask) * part[i]
        out[n] = scales[n] * (total - constant)


def code_width(dim: int, bits: Bits) -> int:
    """Return the bytes of one code."""
    return -(-dim * bits // 8)


@dataclass(frozen=True)
class Codes:
    """Rounded vectors of dimension ``dim``: values (n, ceil(D bits / 8)), uint8, and scales (n,).

    Examples
    --------
    >>> import torch
    >>> vectors = torch.randn(5, 100)
    >>> Codes.encode(vectors, bits=4).values.shape
    (5, 50)
    """

    values: NDArray[np.uint8]
    scales: NDArray[np.float32]
    bits: Bits
    dim: int

    @classmethod
    def encode(cls, vectors: Tensor, bits: Bits) -> Codes:
        """Round vectors (n, D), float32."""
        x = vectors.float().contiguous().numpy()
        values = np.empty((len(x), code_width(x.shape[1], bits)), np.uint8)
        scales = np.empty(len(x), np.float32)
        step = _BEST_STEP.get(bits, 0.0)
        for_ranges(
            lambda part: _encode(x[part], bits, step, values[part], scales[part]), len(x), 64
        )
        return cls(values, scales, bits, x.shape[1])

    def __len__(self) -> int:
        return len(self.scales)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> Codes:
        return Codes(self.values[rows], self.scales[rows], self.bits, self.dim)

    def decode(self) -> Tensor:
        """Return the vectors that the codes stand for. Shape: (n, D), float32."""
        out = np.empty((len(self), self.dim), np.float32)
        for_ranges(
            lambda part: _decode(self.values[part], self.scales[part], self.bits, out[part]),
            len(self),
            256,
        )
        return torch.from_numpy(out)

    def scores(self, queries: Tensor) -> NDArray[np.float32]:
        """Return the inner products with queries (m, D), float32. Shape: (m, n).

        A score does not depend on what is scored beside it, to the last bit.
        """
        out = np.empty((len(queries), len(self)), np.float32)
        padded = np.zeros((len(queries), self.values.shape[1] * 8 // self.bits), np.float32)
        padded[:, : self.dim] = queries.numpy()

        def task(part: slice) -> None:
            for query, scores in zip(padded, out, strict=True):
                _scan(self.values[part], self.scales[part], self.bits, query, scores[part])

        for_ranges(task, len(self), max(len(self) // 8, 256))
        return out

    def approximate_scores(self, queries: Tensor) -> Approximation:
        """Return scores as :meth:`scores` does, much faster, but not exactly."""
        return Approximation(*scan(self.values, self.scales, self.bits, queries.numpy()))


class Approximation(NamedTuple):
    """Scores (m, n), and how far those of each query may be off. Shape of the latter: (m,)."""

    scores: NDArray[np.float32]
    margins: NDArray[np.float64]


@dataclass(frozen=True)
class StoredVectors:
    """Vectors of dimension ``dim`` at the precision of a dtype.

    Parameters
    ----------
    values
        Floats of shape (n, D), or codes of shape (n, ceil(D bits / 8)), uint8.
    scales
        Of codes. Shape: (n,), float32.
    along
        Of codes with an axis, what to add along it. Shape: (n,), float32.
    row
        Of codes with a mean row, what to add to it, rounded. Shape: (n, d).

    Examples
    --------
    >>> axis = torch.tensor([0.6, 0.8])
    >>> stored = StoredVectors.encode(torch.tensor([[6.1, 8.0], [-0.5, 1.2]]), "binary", axis)
    >>> (stored.decode(axis) @ axis).round(decimals=2)
    tensor([10.0600,  0.6600])
    """

    values: NDArray[Any]
    dtype: VectorDtype
    dim: int
    scales: NDArray[np.float32] | None = None
    along: NDArray[np.float32] | None = None
    row: Codes | None = None

    @classmethod
    def encode(
        cls,
        vectors: Tensor,
        dtype: VectorDtype,
        axis: Tensor | None,
        mean_row: MeanRow | None = None,
    ) -> StoredVectors:
        """Round vectors (n, D), float32, given an axis of length 1 (D,) or none.

        If there is a mean row, the axis is orthogonal to it.
        """
        dim = vectors.shape[1]
        if dtype not in _BITS:
            return cls(vectors.numpy().astype(dtype, copy=False), dtype, dim)
        rest, row, left = vectors, None, None
        if axis is not None:
            along = vectors @ axis
            rest = torch.addr(rest, along, axis, alpha=-1)
        if mean_row is not None:
            coordinates = mean_row.coordinates(vectors)
            rest = mean_row.add(rest.clone(), coordinates, -1)
        codes = Codes.encode(rest, _BITS[dtype])
        # What rounding has put back along the axis and into the row is taken off again.
        if axis is not None:
            left = along.numpy() - codes.scores(axis[None])[0]
        if mean_row is not None:
            row = Codes.encode(coordinates - mean_row.coordinates(codes.decode()), 8)
        return cls(codes.values, dtype, dim, codes.scales, left, row)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """Bytes that the vectors take."""
        row = () if self.row is None else (self.row.values, self.row.scales)
        parts = (self.values, self.scales, self.along, *row)
        return sum(part.nbytes for part in parts if part is not None)

    def decode(self, axis: Tensor | None, mean_row: MeanRow | None = None) -> Tensor:
        """Return the vectors, in memory of their own. Shape: (n, D), float32."""
        if self.scales is None:
            return torch.tensor(self.values, dtype=torch.float32)
        vectors = self._codes(self.scales).decode()
        if self.along is not None and axis is not None:
            vectors.addr_(torch.tensor(self.along), axis)
        if self.row is not None and mean_row is not None:
            mean_row.add(vectors, self.row.decode())
        return vectors

    def scores(
        self, queries: Tensor, axis: Tensor | None, mean_row: MeanRow | None = None
    ) -> NDArray[np.float32]:
        """Return the inner products with queries (m, D), float32. Shape: (m, n)."""
        if self.scales is None:
            return self._products(queries)
        products = self._codes(self.scales).scores(queries)
        if self.along is not None and axis is not None:
            products += np.outer(queries @ axis, self.along)
        if self.row is not None and mean_row is not None:
            products += self.row.scores(mean_row.coordinates(queries))
        return products

    def approximate_scores(
        self, queries: Tensor, axis: Tensor | None, mean_row: MeanRow | None = None
    ) -> Approximation:
        """Return scores as :meth:`scores` does; those of codes much faster, but not exactly."""
        if self.scales is None:
            return Approximation(self._products(queries), np.zeros(len(queries)))
        products, margins = self._codes(self.scales).approximate_scores(queries)
        if self.along is not None and axis is not None:
            products += np.outer(queries @ axis, self.along)
        if self.row is not None and mean_row is not None:
            of_row = self.row.approximate_scores(mean_row.coordinates(queries))
            products, margins = products + of_row.scores, margins + of_row.margins
        return Approximation(products, margins)

    def _products(self, queries: Tensor) -> NDArray[np.float32]:
        out = torch.empty(len(queries), len(self))
        step = max(1, _FLOAT_BLOCK_BYTES // (4 * self.dim))
        for begin in range(0, len(self), step):
            part = slice(begin, begin + step)
            out[:, part] = queries @ torch.tensor(self.values[part], dtype=torch.float32).mT
        return out.numpy()

    def _codes(self, scales: NDArray[np.float32]) -> Codes:
        return Codes(self.values, scales, _BITS[self.dtype], self.dim)
