"""Second moments of token matrices, compiled for one core.

All matrices are float32, and their sizes are padded with zeros to multiples of
:data:`~pylate_eigenli.spectral.kernels.simd.LANES`. Of a symmetric result only the square blocks on
and above the diagonal are defined.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import precise
from .simd import LANES, load, splat, store, totals

BLOCK = 2 * LANES
"""Number of dimensions that one pass of the inner loop sums."""

# Tokens are summed in registers, then in parts, then in the moment. Rounding errors therefore grow
# with the number of parts, not with the number of tokens.
TOKENS_PER_SUM = 64
TOKENS_PER_PART = 64 * TOKENS_PER_SUM


@precise
def padded(n: int, step: int) -> int:
    """Round n up to a multiple of step."""
    return -(-n // step) * step


@precise
def in_whole_lanes(x: Any, buffer: Any) -> Any:
    """Copy x to the buffer, pad both axes with zeros to whole lanes, and return the view."""
    whole = buffer[: padded(x.shape[0], LANES)]
    copy_padded(x, whole)
    return whole


@precise
def copy_padded(x: Any, out: Any) -> None:
    """Copy the entries of x to out and fill the rest of out with zeros.

    An assignment to a slice does so too, but takes seconds to compile: numba adds the error message
    for shapes that do not match.
    """
    m, d = x.shape
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = x[i, j] if i < m and j < d else np.float32(0)


@precise
def _part_of_moment(x: Any, out: Any) -> None:
    m, d = x.shape
    zero = splat(np.float32(0))
    for begin in range(0, m, TOKENS_PER_SUM):
        end = min(begin + TOKENS_PER_SUM, m)
        for i in range(0, d, 4):
            for c in range(i // BLOCK * BLOCK, d, BLOCK):
                s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = zero
                for t in range(begin, end):
                    token = x[t]
                    y, z = load(token, c), load(token, c + LANES)
                    a0, a1 = splat(token[i]), splat(token[i + 1])
                    a2, a3 = splat(token[i + 2]), splat(token[i + 3])
                    s0, s1, s2, s3 = s0 + a0 * y, s1 + a1 * y, s2 + a2 * y, s3 + a3 * y
                    t0, t1, t2, t3 = t0 + a0 * z, t1 + a1 * z, t2 + a2 * z, t3 + a3 * z
                r0, r1, r2, r3 = out[i], out[i + 1], out[i + 2], out[i + 3]
                if begin > 0:
                    s0, t0 = s0 + load(r0, c), t0 + load(r0, c + LANES)
                    s1, t1 = s1 + load(r1, c), t1 + load(r1, c + LANES)
                    s2, t2 = s2 + load(r2, c), t2 + load(r2, c + LANES)
                    s3, t3 = s3 + load(r3, c), t3 + load(r3, c + LANES)
                store(r0, c, s0)
                store(r1, c, s1)
                store(r2, c, s2)
                store(r3, c, s3)
                store(r0, c + LANES, t0)
                store(r1, c + LANES, t1)
                store(r2, c + LANES, t2)
                store(r3, c + LANES, t3)


@precise
def second_moment(x: Any, out: Any) -> None:
    """Write X'X of x (m, d) to the upper blocks of out (d, d); d must be a multiple of BLOCK."""
    m, d = x.shape
    _part_of_moment(x[:TOKENS_PER_PART], out)
    if m > TOKENS_PER_PART:
        part = np.empty_like(out)
        for begin in range(TOKENS_PER_PART, m, TOKENS_PER_PART):
            _part_of_moment(x[begin : begin + TOKENS_PER_PART], part)
            for i in range(d):
                to, row = out[i], part[i]
                for c in range(i // BLOCK * BLOCK, d, LANES):
                    store(to, c, load(to, c) + load(row, c))


@precise
def gram(x: Any, out: Any) -> None:
    """Write XX' of x (m, d) to the upper blocks of out (m, m)."""
    m, d = x.shape
    zero = splat(np.float32(0))
    for i in range(0, m, 2):
        a0, a1 = x[i], x[i + 1]
        for j in range(i // LANES * LANES, m, 4):
            b0, b1, b2, b3 = x[j], x[j + 1], x[j + 2], x[j + 3]
            s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = zero
            for c in range(0, d, LANES):
                p, q = load(a0, c), load(a1, c)
                y0, y1, y2, y3 = load(b0, c), load(b1, c), load(b2, c), load(b3, c)
                s0, s1, s2, s3 = s0 + p * y0, s1 + p * y1, s2 + p * y2, s3 + p * y3
                t0, t1, t2, t3 = t0 + q * y0, t1 + q * y1, t2 + q * y2, t3 + q * y3
            store(out[i], j, totals(s0, s1, s2, s3))
            store(out[i + 1], j, totals(t0, t1, t2, t3))
