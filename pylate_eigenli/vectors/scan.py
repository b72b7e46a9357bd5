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

_BYTE_LEVELS = 15  # bits of a rounded query, besides the sign, if codes are multiplied
_FEW_QUERIES = 4  # so few are compared with bits sooner than bits become bytes
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


def _scan_bits(
    values: NDArray[np.uint8],
    scales: NDArray[np.float32],
    bits: int,
    rounded: RoundedQueries,
    out: NDArray[np.float32],
) -> None:
    n, width = values.shape
    middle = ((1 << bits) - 1) / 2
    planes = [_planes(levels, bits, width) for levels in rounded.levels]
    constants = middle * rounded.steps * rounded.levels.sum(1, dtype=np.int64)
    at_once = max(4, _BLOCK_BYTES // width) if len(planes) > 1 else n

    def task(part: slice) -> None:
        for begin in range(part.start, part.stop, at_once):
            block = slice(begin, min(begin + at_once, part.stop))
            for i, plane in enumerate(planes):
                step, constant = rounded.steps[i], constants[i]
                codes, scores = values[block].reshape(-1), out[i, block]
                _count(
                    codes,
                    width,
                    plane.reshape(-1),
                    len(plane),
                    scales[block],
                    step,
                    constant,
                    scores,
                )

    for_ranges(task, n, max(4, _TASK_BYTES // width))


def _scan_bytes(
    values: NDArray[np.uint8],
    scales: NDArray[np.float32],
    bits: int,
    rounded: RoundedQueries,
    out: NDArray[np.float32],
) -> None:
    n, width = values.shape
    parts, mask, middle = 8 // bits, (1 << bits) - 1, ((1 << bits) - 1) / 2
    m = len(rounded.levels)
    # Both bytes of queries moved to positive numbers, and ones: what the moving adds is taken off.
    moved = np.zeros((m, parts * width), np.uint16)
    moved[:, : rounded.levels.shape[1]] = rounded.levels + (1 << _BYTE_LEVELS)
    columns = np.concatenate([moved & 255, moved >> 8, np.ones_like(moved[:1])]).astype(np.uint8)
    packed = [
        numkong.dots_pack(np.ascontiguousarray(part), dtype="uint8")
        for part in np.split(columns, parts, axis=1)
    ]
    constants = middle * rounded.levels.sum(1, dtype=np.int64)

    def task(part: slice) -> None:
        products = np.zeros((part.stop - part.start, 2 * m + 1), np.int64)
        for i, queries in enumerate(packed):
            numbers = values[part] if bits == 8 else (values[part] >> (i * bits)) & mask
            products += numkong.dots_packed(numbers, queries)
        sums = products[:, :m] + (products[:, m : 2 * m] << 8)
        sums -= products[:, 2 * m :] << _BYTE_LEVELS
        out[:, part] = ((sums - constants) * rounded.steps * scales[part, None]).T

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
    scales (n,). ``levels`` are the bits of a rounded query, besides the sign, if bits are counted:
    fewer are faster and less precise. Shapes of the results: (m, n), float32, and (m,).
    """
    by_bytes = bits == 8 or len(queries) >= _FEW_QUERIES
    if by_bytes:
        levels = _BYTE_LEVELS
    rounded = RoundedQueries.of(queries, levels or _plane_levels(bits))
    out = np.empty((len(queries), len(values)), np.float32)
    if out.size and by_bytes:
        _scan_bytes(values, scales, bits, rounded, out)
    elif out.size:
        _scan_bits(values, scales, bits, rounded, out)
    # No vector is longer than one of largest entries.
    longest = ((1 << bits) - 1) / 2 * np.sqrt(queries.shape[1]) * float(scales.max(initial=0))
    return out, rounded.errors.astype(np.float64) * longest
