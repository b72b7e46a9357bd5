"""Householder reduction of symmetric matrices to tridiagonal form, and its back-transformation.

Matrices are float32 and padded with zeros to whole numbers of lanes. Only the square blocks on and
above the diagonal are read.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .compiled import precise
from .simd import LANES, load, load_four, splat, store, total, totals


@precise
def dot(x: Any, y: Any, begin: int, end: int) -> Any:
    """Return the inner product of the entries begin:end of two rows; both ends are whole lanes."""
    products = splat(np.float32(0))
    for c in range(begin, end, LANES):
        products = products + load(x, c) * load(y, c)
    return total(products)


@precise
def _update(row: Any, c: int, v: Any, w: Any, x: Any, y: Any) -> Any:
    """Subtract v y + w x from the lanes at c of a row, and return the result."""
    updated = load(row, c) - v * y - w * x
    store(row, c, updated)
    return updated


@precise
def _update_and_multiply(a: Any, begin: int, v: Any, w: Any, z: Any, out: Any) -> None:
    """Subtract v w' + w v' from the rows at ``begin`` and below, and write their product with z.

    Every block is read once, updated, and multiplied with z from both sides, because it also
    represents its mirror image below the diagonal. z is zero before ``begin``, and the columns
    before ``begin`` are no longer needed.
    """
    n = a.shape[0]
    for c in range(begin // LANES * LANES, n, LANES):
        store(out, c, splat(np.float32(0)))
    for i in range(begin // 4 * 4, n, 4):
        r0, r1, r2, r3 = a[i], a[i + 1], a[i + 2], a[i + 3]
        v0, v1, v2, v3 = splat(v[i]), splat(v[i + 1]), splat(v[i + 2]), splat(v[i + 3])
        w0, w1, w2, w3 = splat(w[i]), splat(w[i + 1]), splat(w[i + 2]), splat(w[i + 3])
        z0, z1, z2, z3 = splat(z[i]), splat(z[i + 1]), splat(z[i + 2]), splat(z[i + 3])
        # The block on the diagonal is its own mirror image.
        c = i // LANES * LANES
        x, y, other = load(v, c), load(w, c), load(z, c)
        a0, a1 = _update(r0, c, v0, w0, x, y), _update(r1, c, v1, w1, x, y)
        a2, a3 = _update(r2, c, v2, w2, x, y), _update(r3, c, v3, w3, x, y)
        s0, s1, s2, s3 = a0 * other, a1 * other, a2 * other, a3 * other
        for c in range(i // LANES * LANES + LANES, n, LANES):
            x, y, other = load(v, c), load(w, c), load(z, c)
            a0, a1 = _update(r0, c, v0, w0, x, y), _update(r1, c, v1, w1, x, y)
            a2, a3 = _update(r2, c, v2, w2, x, y), _update(r3, c, v3, w3, x, y)
            s0, s1, s2, s3 = s0 + a0 * other, s1 + a1 * other, s2 + a2 * other, s3 + a3 * other
            store(out, c, (load(out, c) + a0 * z0 + a1 * z1) + (a2 * z2 + a3 * z3))
        store(out, i, load_four(out, i) + totals(s0, s1, s2, s3))


@precise
def tridiagonalise(a: Any, n: int, diagonal: Any, off: Any, v: Any, tau: Any) -> None:
    """Reduce a symmetric matrix of size n, padded to whole lanes, to tridiagonal form.

    The matrix a is overwritten. The tridiagonal matrix goes to diagonal (n,) and off (n - 1,),
    float64. The reflections are I - tau[j] v[j] v[j]', where v[j] is zero up to j and 1 at j + 1.
    """
    size = a.shape[0]
    w = np.zeros(size, np.float32)
    product = np.zeros(size, np.float32)
    half, none = np.float32(0.5), np.float32(0)
    for j in range(n - 1):
        row, reflector, last = a[j], v[j], v[max(j - 1, 0)]
        first, below = j // LANES * LANES, (j + 1) // LANES * LANES
        # The last pass applied the previous reflection to the rows below j, but not to row j.
        if j > 0:
            x, y = splat(last[j]), splat(w[j])
            for c in range(first, size, LANES):
                store(row, c, load(row, c) - x * load(w, c) - y * load(last, c))
        diagonal[j] = row[j]
        alpha = row[j + 1]
        for c in range(first, j + 2):
            row[c] = 0
        sigma = dot(row, row, below, size)
        if sigma == 0:
            tau[j], off[j], scale = none, alpha, none
        else:
            norm = math.sqrt(alpha * alpha + sigma)
            beta = -norm if alpha >= 0 else norm
            tau[j] = (beta - alpha) / beta
            off[j] = beta
            scale = np.float32(1 / (alpha - beta))
        for c in range(0, below, LANES):
            store(reflector, c, splat(none))
        for c in range(below, size, LANES):
            store(reflector, c, load(row, c) * splat(scale))
        reflector[j + 1] = 1
        w[j] = 0
        # In the first step w is zero and last is finite, so nothing is subtracted.
        _update_and_multiply(a, j + 1, last, w, reflector, product)
        share = tau[j] * dot(product, reflector, below, size) * half
        for c in range(below, size, LANES):
            rest = load(product, c) - splat(np.float32(share)) * load(reflector, c)
            store(w, c, splat(tau[j]) * rest)
        for c in range(below, j + 1):
            w[c] = 0
    diagonal[n - 1] = a[n - 1, n - 1]
    if n > 1:
        diagonal[n - 1] -= 2 * v[n - 2, n - 1] * w[n - 1]


@precise
def reflect_back(v: Any, tau: Any, n: int, z: Any) -> None:
    """Turn rows z (multiple of 4, size), eigenvectors of the tridiagonal matrix, back in place."""
    size = z.shape[1]
    none = splat(np.float32(0))
    along, across = np.empty(4, np.float32), np.empty(4, np.float32)
    for j in range(n - 2, -1, -2):
        # Each pass applies two reflections, using their inner product. If their number is odd, the
        # second reflection of the last pass is the identity.
        first, second = v[j], v[max(j - 1, 0)]
        begin = j // LANES * LANES
        tau1, tau2 = tau[j], tau[j - 1] if j > 0 else np.float32(0)
        overlap = dot(first, second, begin, size)
        for r in range(0, z.shape[0], 4):
            r0, r1, r2, r3 = z[r], z[r + 1], z[r + 2], z[r + 3]
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = none
            for c in range(begin, size, LANES):
                x, y = load(first, c), load(second, c)
                z0, z1, z2, z3 = load(r0, c), load(r1, c), load(r2, c), load(r3, c)
                a0, a1, a2, a3 = a0 + x * z0, a1 + x * z1, a2 + x * z2, a3 + x * z3
                b0, b1, b2, b3 = b0 + y * z0, b1 + y * z1, b2 + y * z2, b3 + y * z3
            store(along, 0, totals(a0, a1, a2, a3))
            store(across, 0, totals(b0, b1, b2, b3))
            for i in range(4):
                along[i] *= tau1
                across[i] = tau2 * (across[i] - along[i] * overlap)
            s0, s1, s2, s3 = splat(along[0]), splat(along[1]), splat(along[2]), splat(along[3])
            t0, t1, t2, t3 = splat(across[0]), splat(across[1]), splat(across[2]), splat(across[3])
            for c in range(begin, size, LANES):
                x, y = load(first, c), load(second, c)
                store(r0, c, load(r0, c) - s0 * x - t0 * y)
                store(r1, c, load(r1, c) - s1 * x - t1 * y)
                store(r2, c, load(r2, c) - s2 * x - t2 * y)
                store(r3, c, load(r3, c) - s3 * x - t3 * y)
