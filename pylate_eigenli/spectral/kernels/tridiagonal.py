"""The largest eigenpairs of a symmetric tridiagonal matrix, computed in parallel lanes.

Bisection finds the eigenvalues; twisted factorisations in float64 with Rayleigh quotient
corrections find the eigenvectors. Each eigenpair is independent of the others, so every lane of a
SIMD vector computes one. The price: eigenvectors of (nearly) equal eigenvalues may not be
orthogonal.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .compiled import reordered
from .simd import LANES, load, load_eight, select_less, splat, splat_eight, store

# The decorator allows reordered sums, but NaN and infinity keep their meaning: they reveal a failed
# factorisation.

_BISECTIONS = 22  # final interval: 2**-22 of the spectrum's width, below the noise of float32
_REFINEMENTS = 3  # Rayleigh quotient corrections, which converge cubically
_SETTLED = 1e-9  # sufficient accuracy relative to the largest eigenvalue; float32 has 1e-7
_AT_ONCE = 4 * 8  # bisections in parallel, so that their divisions overlap


@reordered
def largest_eigenvalues(diagonal: Any, off: Any, k: int, out: Any) -> float:
    """Bisect for the k largest eigenvalues, descending; return the final interval's width.

    The matrix is diagonal (n,) and off (at least n - 1,), float64, here and below.
    """
    n = diagonal.shape[0]
    low, high = diagonal[0], diagonal[0]
    for i in range(n):
        radius = (abs(off[i]) if i < n - 1 else 0.0) + (abs(off[i - 1]) if i > 0 else 0.0)
        low = min(low, diagonal[i] - radius)
        high = max(high, diagonal[i] + radius)
    # Never zero: a zero pivot then makes the next pivot infinite, which counts correctly, not NaN.
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
                # If n - r eigenvalues or more lie below, so does the r-th largest (from 0).
                if below[r] >= n - (begin + r):
                    highs[r] = middle[r]
                else:
                    lows[r] = middle[r]
        for r in range(begin, min(begin + _AT_ONCE, k)):
            out[r] = 0.5 * (np.float64(lows[r - begin]) + np.float64(highs[r - begin]))
    return float((high - low) / 2.0**_BISECTIONS)


@reordered
def eigenvectors(diagonal: Any, off: Any, values: Any, settled: Any, z: Any) -> None:
    """Refine eigenvalues (k,), descending, and compute their unit eigenvectors.

    ``settled`` (k,) receives whether an eigenvalue has converged; z (n, k in whole lanes), float64,
    receives the eigenvectors as columns.
    """
    n, k = diagonal.shape[0], values.shape[0]
    # Pivots and multipliers of the factorisations LDL' (from the start) and UDU' (from the end).
    down, up = np.empty((n, LANES)), np.empty((n, LANES))
    forward, backward = np.empty((n, LANES)), np.empty((n, LANES))
    value, gamma, norm = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    zero, one = splat(0.0), splat(1.0)
    # Replaces a zero pivot; the square of a quotient by it is still finite, of tokens of any length.
    tiny = splat(1e-120 * max(abs(values[0]), 1e-30))
    for begin in range(0, k, LANES):
        for r in range(LANES):
            value[r] = values[min(begin + r, k - 1)]
        for sweep in range(_REFINEMENTS + 1):
            v = load(value, 0)
            p, q = splat(diagonal[0]) - v, splat(diagonal[n - 1]) - v
            store(down[0], 0, p)
            store(up[n - 1], 0, q)
            for i in range(n - 1):
                # The two chains of divisions are independent and overlap.
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
            # The twist is the position with the smallest sum of both pivots.
            g = load(down[0], 0) + load(up[0], 0) - (splat(diagonal[0]) - v)
            best, smallest, at = g, g * g, zero
            for i in range(1, n):
                g = load(down[i], 0) + load(up[i], 0) - (splat(diagonal[i]) - v)
                square = g * g
                best = select_less(square, smallest, g, best)
                at = select_less(square, smallest, splat(float(i)), at)
                smallest = select_less(square, smallest, square, smallest)
            # The eigenvector is a product of multipliers on both sides of the twist.
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
