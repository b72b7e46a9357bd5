"""The largest eigenpairs of a symmetric tridiagonal matrix, many at a time.

Eigenvalues come from bisection, eigenvectors from twisted factorisations in float64 with Rayleigh
quotient corrections. Neither knows of the other eigenpairs, so all of them are computed in step,
one per lane of a vector. The price is that vectors of (nearly) equal eigenvalues need not be
orthogonal.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .compiled import reordered
from .simd import LANES, load, load_eight, select_less, splat, splat_eight, store

# Sums may be reordered (that is what vectorises them), but NaN and infinity keep their meaning:
# a failed factorisation must be seen.

_BISECTIONS = 22  # interval of 2**-22 of the spectrum's width: past float32's own noise
_REFINEMENTS = 3  # Rayleigh quotient corrections converge cubically from there ...
_SETTLED = 1e-9  # ... and need not go further than this share of the largest: float32 ends at 1e-7
_AT_ONCE = 4 * 8  # bisections in step: while one division is under way, others can begin


@reordered
def largest_eigenvalues(diagonal: Any, off: Any, k: int, out: Any) -> float:
    """Bisect for the k largest eigenvalues, descending; return the final interval's width.

    Parameters
    ----------
    diagonal, off
        The matrix. Shapes: (n,) and at least (n - 1,), float64.
    k
        How many, at most n.
    out
        Receives them. Shape: (k,), float64.
    """
    n = diagonal.shape[0]
    low, high = diagonal[0], diagonal[0]
    for i in range(n):
        radius = (abs(off[i]) if i < n - 1 else 0.0) + (abs(off[i - 1]) if i > 0 else 0.0)
        low = min(low, diagonal[i] - radius)
        high = max(high, diagonal[i] + radius)
    # Never zero: a pivot of zero then makes the next one infinite, which counts right, not NaN.
    squared = np.empty(n, np.float32)
    squared[0] = 0
    for i in range(1, n):
        squared[i] = max(off[i - 1] * off[i - 1], 1e-30)
    zero, one = splat_eight(np.float32(0)), splat_eight(np.float32(1))
    lows, highs = np.empty(_AT_ONCE, np.float32), np.empty(_AT_ONCE, np.float32)
    middle, below = np.empty(_AT_ONCE, np.float32), np.empty(_AT_ONCE, np.float32)
    for begin in range(0, k, _AT_ONCE):
        lows[:] = low
        highs[:] = high
        for _ in range(_BISECTIONS):
            for r in range(_AT_ONCE):
                middle[r] = np.float32(0.5) * (lows[r] + highs[r])
            m0, m1 = load_eight(middle, 0), load_eight(middle, 8)
            m2, m3 = load_eight(middle, 16), load_eight(middle, 24)
            q0 = q1 = q2 = q3 = one
            n0 = n1 = n2 = n3 = zero
            for i in range(n):
                d, e = splat_eight(np.float32(diagonal[i])), splat_eight(squared[i])
                q0, q1 = d - m0 - e / q0, d - m1 - e / q1
                q2, q3 = d - m2 - e / q2, d - m3 - e / q3
                n0 = n0 + select_less(q0, zero, one, zero)
                n1 = n1 + select_less(q1, zero, one, zero)
                n2 = n2 + select_less(q2, zero, one, zero)
                n3 = n3 + select_less(q3, zero, one, zero)
            store(below, 0, n0)
            store(below, 8, n1)
            store(below, 16, n2)
            store(below, 24, n3)
            for r in range(_AT_ONCE):
                # More than n - r - 1 eigenvalues lie below: so does the r-th largest.
                if below[r] >= n - (begin + r):
                    highs[r] = middle[r]
                else:
                    lows[r] = middle[r]
        for r in range(begin, min(begin + _AT_ONCE, k)):
            out[r] = 0.5 * (np.float64(lows[r - begin]) + np.float64(highs[r - begin]))
    return float((high - low) / 2.0**_BISECTIONS)


@reordered
def eigenvectors(diagonal: Any, off: Any, values: Any, settled: Any, z: Any) -> None:
    """Refine eigenvalues and compute their unit eigenvectors.

    Parameters
    ----------
    diagonal, off
        The matrix. Shapes: (n,) and at least (n - 1,), float64.
    values
        Approximate eigenvalues, the largest first; receives better ones. Shape: (k,), float64.
    settled
        Receives whether the last correction was as small as it should be. Shape: (k,), bool.
    z
        Receives the eigenvectors in columns. Shape: (n, k in whole lanes), float64.
    """
    n, k = diagonal.shape[0], values.shape[0]
    # Pivots and multipliers of the factorisations LDL' from the start and UDU' from the end.
    down, up = np.empty((n, LANES)), np.empty((n, LANES))
    forward, backward = np.empty((n, LANES)), np.empty((n, LANES))
    value, gamma, norm = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    zero, one = splat(0.0), splat(1.0)
    # In place of a pivot of zero: what is divided by it stays finite when it is squared.
    tiny = splat(1e-150)
    for begin in range(0, k, LANES):
        for r in range(LANES):
            value[r] = values[min(begin + r, k - 1)]
        for sweep in range(_REFINEMENTS + 1):
            v = load(value, 0)
            p, q = splat(diagonal[0]) - v, splat(diagonal[n - 1]) - v
            store(down[0], 0, p)
            store(up[n - 1], 0, q)
            for i in range(n - 1):
                # Two chains of divisions at a time: one waits while the other is served.
                e = splat(off[i])
                f = e / select_less(p * p, tiny * tiny, tiny, p)
                p = splat(diagonal[i + 1]) - v - e * f
                store(forward[i], 0, f)
                store(down[i + 1], 0, p)
                j = n - 2 - i
                e = splat(off[j])
                f = e / select_less(q * q, tiny * tiny, tiny, q)
                q = splat(diagonal[j]) - v - e * f
                store(backward[j], 0, f)
                store(up[j], 0, q)
            # They meet where the sum of both pivots is smallest.
            g = load(down[0], 0) + load(up[0], 0) - (splat(diagonal[0]) - v)
            best, smallest, at = g, g * g, zero
            for i in range(1, n):
                g = load(down[i], 0) + load(up[i], 0) - (splat(diagonal[i]) - v)
                square = g * g
                best = select_less(square, smallest, g, best)
                at = select_less(square, smallest, splat(float(i)), at)
                smallest = select_less(square, smallest, square, smallest)
            # From there the vector is a product of multipliers to either side.
            squares, entry = zero, zero
            for i in range(n - 1, -1, -1):
                here = splat(float(i))
                start = select_less(at, here, zero, one)
                product = zero - load(forward[i], 0) * entry if i < n - 1 else zero
                entry = select_less(here, at, product, start)
                squares = squares + entry * entry
                store(z[i], begin, entry)
            entry = zero
            for i in range(n):
                here = splat(float(i))
                product = zero - load(backward[i - 1], 0) * entry if i > 0 else zero
                entry = select_less(at, here, product, load(z[i], begin))
                squares = squares + select_less(at, here, entry * entry, zero)
                store(z[i], begin, entry)
            store(gamma, 0, best)
            store(norm, 0, squares)
            done = True
            for r in range(min(LANES, k - begin)):
                correction = gamma[r] / norm[r]
                settled[begin + r] = abs(correction) <= _SETTLED * abs(values[0])
                done = done and settled[begin + r]
            if done or sweep == _REFINEMENTS:
                break
            for r in range(LANES):
                value[r] += gamma[r] / norm[r]
        for r in range(min(LANES, k - begin)):
            values[begin + r] = value[r]
        for r in range(LANES):
            norm[r] = 1 / math.sqrt(norm[r])
        scale = load(norm, 0)
        for i in range(n):
            store(z[i], begin, load(z[i], begin) * scale)
