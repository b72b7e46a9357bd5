"""Approximate scores of all codes, fast, and how far they may be off.

The scan rounds queries to integers, up or down at random, so that errors are independent and zero on
average. By Hoeffding's inequality their inner product with a vector x exceeds 4 steps times |x|
once in 10^13 times. So the scan can say by how much a score may be off, and whoever wants the best
documents scores those that could be among them exactly.

Codes of 8 bits, and all codes for many queries, are multiplied as bytes by NumKong. For few queries
and few bits, bits are counted: a code is a string of bits, each of which weighs as much as its
dimension in the query, times a power of two. *Planes* hold the bits of these weights, and ::

    sum_i q_i u_i  =  sum_r 2^r |code & plane_r|

where the last plane counts as negative, as in all two's complements.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numkong
import numpy as np
from numpy.typing import NDArray

from ..spectral.kernels.compiled import precise
from ..spectral.kernels.simd import (
    BYTES,
    add_common_bits,
    load_words,
    negative,
    splat_eight,
    total_words,
    twice_plus,
)
from ..spectral.kernels.threads import for_ranges

# By the bits of codes, how many queries are compared with bits sooner than bits become bytes.
_FEW_QUERIES = {1: 23, 2: 7, 4: 2, 8: 0}
_TASK_BYTES = 2 << 20  # less than that is read sooner than another thread wakes
_BLOCK_BYTES = 1 << 17  # of codes that stay in the cache while all queries are compared with them
_DEVIATIONS = 4.0  # sqrt(log(2 / 10**-13) / 2)
# Sums of float32, here and where scores are exact, are off by this much of the product of lengths.
_FLOAT_ERROR = 4e-6


class RoundedQueries(NamedTuple):
    """Queries as integers: query i is about ``steps[i] * levels[i]``.

    Its inner product with a vector of length 1 is off by ``errors[i]``. ``levels`` is (n, D).
    """

    levels: NDArray[np.int32]
    steps: NDArray[np.float32]
    errors: NDArray[np.float32]

    @classmethod
    def of(cls, queries: NDArray[np.float32], bits: int) -> RoundedQueries:
        """Round queries (n, D) to integers of so many bits and a sign."""
        top = (1 << bits) - 2  # one less, so that rounding up fits
        steps = np.abs(queries).max(axis=1, initial=0, keepdims=True) / np.float32(top)
        inverse = np.divide(1, steps, out=np.zeros_like(steps), where=steps > 0)
        levels = np.floor(queries * inverse + _fractions(queries.shape[1]) * (steps > 0))
        errors = _DEVIATIONS * steps[:, 0] + _FLOAT_ERROR * np.linalg.norm(queries, axis=1)
        return cls(levels.astype(np.int32), steps[:, 0], errors)


@lru_cache(maxsize=8)
def _fractions(dim: int) -> NDArray[np.float32]:
    """Return the same random numbers in [0, 1) each time. Shape: (dim,)."""
    return np.random.default_rng(0).random(dim, np.float32)


@precise
def _count(
    codes: Any, width: int, planes: Any, count: int, scales: Any, step: Any, constant: Any, out: Any
) -> None:
    """Write scale (step sum_r 2^r |code & planes[r]| - constant) of all codes (n, width) to out.

    Codes and planes are one row after the other in one dimension each, as a row of its own would
    have its references counted. Planes have zeros up to whole vectors of bytes.
    """
    n = scales.shape[0]
    padded = planes.shape[0] // count
    whole = width // BYTES * BYTES
    rest = np.zeros(4 * BYTES, np.uint8)
    none = splat_eight(np.uint64(0))
    for begin in range(0, n, 4):
        # Four codes at a time, so that a plane is read for all of them; at the end some are equal.
        i1, i2, i3 = min(begin + 1, n - 1), min(begin + 2, n - 1), min(begin + 3, n - 1)
        c0, c1, c2, c3 = begin * width, i1 * width, i2 * width, i3 * width
        for c in range(whole, width):
            rest[c - whole], rest[BYTES + c - whole] = codes[c0 + c], codes[c1 + c]
            rest[2 * BYTES + c - whole] = codes[c2 + c]
            rest[3 * BYTES + c - whole] = codes[c3 + c]
        t0 = t1 = t2 = t3 = none
        for r in range(count - 1, -1, -1):
            plane = r * padded
            s0 = s1 = s2 = s3 = none
            for c in range(0, whole, BYTES):
                p = load_words(planes, plane + c)
                s0 = add_common_bits(s0, load_words(codes, c0 + c), p)
                s1 = add_common_bits(s1, load_words(codes, c1 + c), p)
                s2 = add_common_bits(s2, load_words(codes, c2 + c), p)
                s3 = add_common_bits(s3, load_words(codes, c3 + c), p)
            if whole < width:
                p = load_words(planes, plane + whole)
                s0 = add_common_bits(s0, load_words(rest, 0), p)
                s1 = add_common_bits(s1, load_words(rest, BYTES), p)
                s2 = add_common_bits(s2, load_words(rest, 2 * BYTES), p)
                s3 = add_common_bits(s3, load_words(rest, 3 * BYTES), p)
            if r == count - 1:
                s0, s1, s2, s3 = negative(s0), negative(s1), negative(s2), negative(s3)
            # Words are weighed, not their totals, which take many more instructions.
            t0, t1 = twice_plus(t0, s0), twice_plus(t1, s1)
            t2, t3 = twice_plus(t2, s2), twice_plus(t3, s3)
        out[i3] = scales[i3] * (step * total_words(t3) - constant)
        out[i2] = scales[i2] * (step * total_words(t2) - constant)
        out[i1] = scales[i1] * (step * total_words(t1) - constant)
        out[begin] = scales[begin] * (step * total_words(t0) - constant)


def _plane_levels(bits: int) -> int:
    """Return the bits of a rounded query, besides the sign, if bits of codes are counted.

    Codes of more bits are compared with more, as their margin supposes entries that few of them have.
    """
    return 8 + bits // 2


def _byte_levels(bits: int) -> int:
    """Return the bits of a rounded query, besides the sign, if codes are multiplied as bytes.

    One byte of them is as precise as :func:`_plane_levels`, and two are for codes that need more.
    """
    return 7 if bits == 1 else 15


def _planes(levels: NDArray[np.int32], bits: int, width: int) -> NDArray[np.uint8]:
    """Return the planes of one rounded query (D,). Shape: (planes, bytes)."""
    padded = np.zeros((8 // bits, width), np.int32)
    padded.reshape(-1)[: len(levels)] = levels
    # By the bits of a byte, lowest first: those of its first dimension, of its second, and so on.
    weights = (padded[:, None, :] << np.arange(bits, dtype=np.int32)[:, None]).reshape(8, width)
    count = int(np.abs(weights).max(initial=1)).bit_length() + 1
    planes = np.zeros((count, -(-width // BYTES) * BYTES), np.uint8)
    for r in range(count):
        planes[r, :width] = np.packbits((weights >> r) & 1, axis=0, bitorder="little")[0]
    return planes


class _Prepared(NamedTuple):
    """Queries as a scan reads them: planes of each, or packed bytes of all.

    ``constants`` (m,) are what codes of zeros would add to the sums.
    """

    rounded: RoundedQueries
    parts: list[Any]
    constants: NDArray[Any]


# An index scans segment after segment with the same queries.
@lru_cache(maxsize=8)
def _prepared(
    data: bytes, dim: int, bits: int, width: int, levels: int, by_bytes: bool
) -> _Prepared:
    """Round queries, given as the bytes of their array (m, D), for codes of so many bytes."""
    queries = np.frombuffer(data, np.float32).reshape(-1, dim)
    rounded = RoundedQueries.of(queries, levels)
    middle = ((1 << bits) - 1) / 2
    constants = middle * rounded.levels.sum(1, dtype=np.int64)
    if not by_bytes:
        planes = [_planes(of_query, bits, width) for of_query in rounded.levels]
        return _Prepared(rounded, planes, constants * rounded.steps)
    # Moved to positive numbers, byte by byte, and ones: what the moving adds is taken off.
    count = 8 // bits
    moved = np.zeros((len(queries), count * width), np.uint16)
    moved[:, :dim] = rounded.levels + (1 << levels)
    split = [(moved >> (8 * byte)) & 255 for byte in range((levels + 1) // 8)]
    columns = np.concatenate([*split, np.ones_like(moved[:1])]).astype(np.uint8)
    packed = [
        numkong.dots_pack(np.ascontiguousarray(part), dtype="uint8")
        for part in np.split(columns, count, axis=1)
    ]
    return _Prepared(rounded, packed, constants)


def _scan_bits(
    values: NDArray[np.uint8],
    scales: NDArray[np.float32],
    queries: _Prepared,
    out: NDArray[np.float32],
) -> None:
    n, width = values.shape
    planes, steps = queries.parts, queries.rounded.steps
    at_once = max(4, _BLOCK_BYTES // width) if len(planes) > 1 else n

    def task(part: slice) -> None:
        for begin in range(part.start, part.stop, at_once):
            block = slice(begin, min(begin + at_once, part.stop))
            codes = values[block].reshape(-1)
            for i, plane in enumerate(planes):
                _count(
                    codes,
                    width,
                    plane.reshape(-1),
                    len(plane),
                    scales[block],
                    steps[i],
                    queries.constants[i],
                    out[i, block],
                )

    for_ranges(task, n, max(4, _TASK_BYTES // width))


def _scan_bytes(
    values: NDArray[np.uint8],
    scales: NDArray[np.float32],
    bits: int,
    levels: int,
    queries: _Prepared,
    out: NDArray[np.float32],
) -> None:
    n, width = values.shape
    m, n_bytes, mask = len(out), (levels + 1) // 8, (1 << bits) - 1

    def task(part: slice) -> None:
        products = np.zeros((part.stop - part.start, m * n_bytes + 1), np.int64)
        for i, packed in enumerate(queries.parts):
            numbers = values[part] if bits == 8 else (values[part] >> (i * bits)) & mask
            products += numkong.dots_packed(numbers, packed)
        sums = products[:, :m] - (products[:, -1:] << levels)
        for byte in range(1, n_bytes):
            sums += products[:, byte * m : (byte + 1) * m] << (8 * byte)
        out[:, part] = ((sums - queries.constants) * queries.rounded.steps * scales[part, None]).T

    for_ranges(task, n, max(1, (_TASK_BYTES if bits == 8 else _BLOCK_BYTES) // width))


def scan(
    values: NDArray[np.uint8],
    scales: NDArray[np.float32],
    bits: int,
    queries: NDArray[np.float32],
    levels: int | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return approximate scores of codes for queries (m, D), and how far each query's may be off.

    Codes are those of :class:`pylate_eigenli.vectors.quantization.Codes`: values (n, bytes) and
    scales (n,). With ``levels``, bits are counted for queries of so many bits besides the sign: fewer
    are faster and less precise. Shapes of the results: (m, n), float32, and (m,).
    """
    by_bytes = levels is None and len(queries) > _FEW_QUERIES[bits]
    if by_bytes or levels is None:
        levels = _byte_levels(bits) if by_bytes else _plane_levels(bits)
    data = np.ascontiguousarray(queries, np.float32).tobytes()
    prepared = _prepared(data, queries.shape[1], bits, values.shape[1], levels, by_bytes)
    out = np.empty((len(queries), len(values)), np.float32)
    if out.size and by_bytes:
        _scan_bytes(values, scales, bits, levels, prepared, out)
    elif out.size:
        _scan_bits(values, scales, prepared, out)
    # No vector is longer than one of largest entries.
    longest = ((1 << bits) - 1) / 2 * np.sqrt(queries.shape[1]) * float(scales.max(initial=0))
    return out, prepared.rounded.errors.astype(np.float64) * longest
