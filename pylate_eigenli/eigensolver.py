"""Top eigenpairs of a document's second moment, compiled for one CPU core per document.

LAPACK computes all d eigenvectors of each d x d matrix, although a document keeps only the
first k, and spends most of the time of such small matrices between its building blocks.
This solver does just what is needed, in one compiled loop without the interpreter lock:

1. the moment X'X, or the smaller Gram matrix XX' for a document with fewer tokens than dimensions;
2. Householder reduction to tridiagonal form, each trailing row read once per step: it is
   updated and multiplied with the next reflector in the same pass;
3. the k largest eigenvalues by bisection, all k at a time;
4. their eigenvectors by twisted factorisations in float64, with Rayleigh quotient corrections;
5. the reflectors applied to those k vectors only.

Twisted factorisations know nothing of each other, so (nearly) equal eigenvalues may give
vectors that are not orthogonal. That is checked for every document, and the few that fail are
left to LAPACK by the caller (:mod:`pylate_eigenli.subspace`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

# Sums may be reordered (that is what vectorises them), but NaN and infinity keep their meaning:
# a failed factorisation must be seen.
_jit = njit(
    nogil=True,
    cache=True,
    error_model="numpy",  # no branch on a zero divisor, so that divisions vectorise too
    fastmath={"reassoc", "contract", "nsz", "arcp"},
)

_LANES = 8  # loops over whole vectors of this many floats have no remainder to do one by one
_BISECTIONS = 22  # interval of 2**-22 of the spectrum's width: past float32's own noise
_REFINEMENTS = 2  # Rayleigh quotient corrections converge cubically from there ...
_SETTLED = 1e-12  # ... and one below this share of the largest value is not worth another round
_ORTHOGONALITY = 1e-6  # largest inner product accepted between two computed unit eigenvectors
_OVERLAP = 0.1  # largest one that is taken out of them; beyond, they may be one and the same


# The three loops that take the time work on whole one-dimensional slices: counting from zero is
# what lets the compiler drop negative-index handling and vectorise them.


@_jit
def _dot(x: Any, y: Any) -> Any:
    total = x.dtype.type(0)
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@_jit
def _subtract(row: Any, scale: Any, x: Any) -> None:
    for i in range(row.shape[0]):
        row[i] -= scale * x[i]


@_jit
def _update_and_multiply(a: Any, begin: int, n: int, v: Any, w: Any, other: Any, out: Any) -> None:
    """Subtract v w' + w v' from a[begin:n, begin:n]; write its product with other to out.

    Two rows at a time, so that v, w and other are loaded once for both. Rows are entered at a
    whole number of vector lanes: other is zero before ``begin``, and what happens to the columns
    there no longer matters.
    """
    zero = a.dtype.type(0)
    start = begin // _LANES * _LANES
    x, y, z = v[start:n], w[start:n], other[start:n]
    even = begin + (n - begin) // 2 * 2
    for i in range(begin, even, 2):
        row, next_row = a[i, start:n], a[i + 1, start:n]
        v0, w0, v1, w1 = v[i], w[i], v[i + 1], w[i + 1]
        sum0, sum1 = zero, zero
        for c in range(x.shape[0]):
            value0 = row[c] - (v0 * y[c] + w0 * x[c])
            value1 = next_row[c] - (v1 * y[c] + w1 * x[c])
            row[c] = value0
            next_row[c] = value1
            sum0 += value0 * z[c]
            sum1 += value1 * z[c]
        out[i] = sum0
        out[i + 1] = sum1
    for i in range(even, n):
        row = a[i, start:n]
        _subtract(row, v[i], y)
        _subtract(row, w[i], x)
        out[i] = _dot(row, z)


@_jit
def _add_eight(x: Any, t: int, out: Any) -> None:
    """Add the lower triangles of the outer products of the tokens x[t : t + 8] to out.

    Eight at a time, so that a row of the result is loaded and stored once for all of them.
    """
    d = x.shape[1]
    x0, x1, x2, x3 = x[t], x[t + 1], x[t + 2], x[t + 3]
    x4, x5, x6, x7 = x[t + 4], x[t + 5], x[t + 6], x[t + 7]
    for i in range(d):
        row = out[i, : min(d, (i // _LANES + 1) * _LANES)]
        a0, a1, a2, a3, a4, a5, a6, a7 = x0[i], x1[i], x2[i], x3[i], x4[i], x5[i], x6[i], x7[i]
        for j in range(row.shape[0]):
            row[j] += (
                (a0 * x0[j] + a1 * x1[j])
                + (a2 * x2[j] + a3 * x3[j])
                + (a4 * x4[j] + a5 * x5[j])
                + (a6 * x6[j] + a7 * x7[j])
            )


@_jit
def second_moment(x: Any, out: Any) -> None:
    """Write X'X of x (m, d) to out[:d, :d], both triangles."""
    m, d = x.shape
    out[:d, :d] = 0
    whole = m - m % 8
    for t in range(0, whole, 8):
        _add_eight(x, t, out)
    if whole < m:
        rest = np.zeros((8, d), x.dtype)
        rest[: m - whole] = x[whole:]
        _add_eight(rest, 0, out)
    for i in range(d):
        for j in range(i):
            out[j, i] = out[i, j]


@_jit
def _tridiagonalise(a: Any, n: int, diagonal: Any, off: Any, v: Any, tau: Any) -> None:
    """Reduce the symmetric a[:n, :n] (destroyed) to T; reflector j is tau[j], v[j, j + 1 : n]."""
    w = np.zeros(n, a.dtype)
    p = np.zeros(n, a.dtype)
    zero = a.dtype.type(0)
    for j in range(n - 1):
        # Row j has not yet seen the reflector before it; the rows below get it in the pass.
        if j > 0:
            _subtract(a[j, j:n], v[j - 1, j], w[j:n])
            _subtract(a[j, j:n], w[j], v[j - 1, j:n])
        diagonal[j] = a[j, j]
        alpha = a[j, j + 1]
        sigma = _dot(a[j, j + 2 : n], a[j, j + 2 : n])
        if sigma == zero:
            tau[j], off[j], scale = zero, alpha, zero
        else:
            norm = math.sqrt(alpha * alpha + sigma)
            beta = -norm if alpha >= 0 else norm
            tau[j] = (beta - alpha) / beta
            off[j] = beta
            scale = 1 / (alpha - beta)
        v[j, : j + 1] = 0
        w[j] = 0
        v[j, j + 1] = 1
        for c in range(j + 2, n):
            v[j, c] = a[j, c] * scale
        # At the first step there is nothing to subtract yet: w is zero.
        _update_and_multiply(a, j + 1, n, v[max(j - 1, 0)], w, v[j], p)
        half = tau[j] * _dot(p[j + 1 : n], v[j, j + 1 : n]) / 2
        for i in range(j + 1, n):
            w[i] = tau[j] * (p[i] - half * v[j, i])
    if n > 1:
        a[n - 1, n - 1] -= 2 * v[n - 2, n - 1] * w[n - 1]
    diagonal[n - 1] = a[n - 1, n - 1]


@_jit
def _largest_eigenvalues(diagonal: Any, off: Any, n: int, k: int, out: Any) -> float:
    """Bisect for the k largest eigenvalues of T, descending; return the final interval's width."""
    low, high = diagonal[0], diagonal[0]
    for i in range(n):
        radius = (abs(off[i]) if i < n - 1 else 0.0) + (abs(off[i - 1]) if i > 0 else 0.0)
        low = min(low, diagonal[i] - radius)
        high = max(high, diagonal[i] + radius)
    tiny = np.float32(1e-30)
    lows = np.full(k, low, np.float32)
    highs = np.full(k, high, np.float32)
    middle = np.empty(k, np.float32)
    q = np.empty(k, np.float32)
    negative = np.empty(k, np.int32)
    for _ in range(_BISECTIONS):
        for r in range(k):
            middle[r] = np.float32(0.5) * (lows[r] + highs[r])
            q[r] = 1
            negative[r] = 0
        squared = np.float32(0)
        for i in range(n):
            d_i = np.float32(diagonal[i])
            for r in range(k):
                value = d_i - middle[r] - squared / q[r]
                value = -tiny if abs(value) < tiny else value
                q[r] = value
                negative[r] += np.int32(value < 0)
            if i < n - 1:
                squared = np.float32(off[i] * off[i])
        for r in range(k):
            # More than n - r - 1 eigenvalues lie below: so does the r-th largest.
            if negative[r] >= n - r:
                highs[r] = middle[r]
            else:
                lows[r] = middle[r]
    for r in range(k):
        out[r] = 0.5 * (np.float64(lows[r]) + np.float64(highs[r]))
    return float((high - low) / 2.0**_BISECTIONS)


@_jit
def _eigenvectors(
    diagonal: Any, off: Any, n: int, k: int, values: Any, z: Any, forward: Any, backward: Any
) -> None:
    """Refine ``values`` and write the unit eigenvectors of T to z (k, n), all in float64."""
    down = np.empty(k, np.float64)
    up = np.empty((n, k), np.float64)
    best = np.empty(k, np.float64)
    at = np.zeros(k, np.int64)
    tiny = 1e-300
    norms = np.empty(k, np.float64)
    for sweep in range(_REFINEMENTS + 1):
        # UDU' from the end: up[i] are its pivots, backward[i] its multipliers ...
        for r in range(k):
            up[n - 1, r] = diagonal[n - 1] - values[r]
        for i in range(n - 2, -1, -1):
            for r in range(k):
                pivot = up[i + 1, r]
                pivot = tiny if pivot == 0.0 else pivot
                backward[i, r] = off[i] / pivot
                up[i, r] = diagonal[i] - values[r] - off[i] * backward[i, r]
        # ... LDL' from the start; they meet where the sum of both pivots is smallest.
        for r in range(k):
            down[r] = diagonal[0] - values[r]
            best[r] = up[0, r]
            at[r] = 0
        for i in range(n - 1):
            for r in range(k):
                pivot = tiny if down[r] == 0.0 else down[r]
                forward[i, r] = off[i] / pivot
                down[r] = diagonal[i + 1] - values[r] - off[i] * forward[i, r]
                gamma = down[r] + up[i + 1, r] - (diagonal[i + 1] - values[r])
                closer = abs(gamma) < abs(best[r])
                best[r] = gamma if closer else best[r]
                at[r] = i + 1 if closer else at[r]
        correction = 0.0
        for r in range(k):
            meeting = at[r]
            z[r, meeting] = 1.0
            norm = 1.0
            for i in range(meeting - 1, -1, -1):
                z[r, i] = -forward[i, r] * z[r, i + 1]
                norm += z[r, i] * z[r, i]
            for i in range(meeting + 1, n):
                z[r, i] = -backward[i - 1, r] * z[r, i - 1]
                norm += z[r, i] * z[r, i]
            norms[r] = norm
            correction = max(correction, abs(best[r] / norm))
        if sweep == _REFINEMENTS or correction <= _SETTLED * abs(values[0]):
            break
        for r in range(k):
            values[r] += best[r] / norms[r]
    for r in range(k):
        scale = 1.0 / math.sqrt(norms[r])
        for i in range(n):
            z[r, i] *= scale


@_jit
def _is_sound(z: Any, values: Any, start: Any, width: float, n: int, rank: int) -> bool:
    """Whether the vectors are orthonormal, or could be made so, at the values bisection found.

    Vectors of close eigenvalues may overlap a little. Taking the overlap out of the later one only
    mixes in more of an eigenvector of nearly the same eigenvalue.
    """
    for r in range(rank):
        if not abs(values[r] - start[r]) <= 8 * width:
            return False
        row = z[r, :n]
        changed = False
        for s in range(r):
            dot = _dot(row, z[s, :n])
            if not abs(dot) <= _OVERLAP:
                return False
            if abs(dot) > _ORTHOGONALITY:
                _subtract(row, dot, z[s, :n])
                changed = True
        if changed:
            row *= 1 / math.sqrt(_dot(row, row))
        if not abs(_dot(row, row) - 1.0) <= _ORTHOGONALITY:
            return False
    return True


@_jit
def _apply_reflectors(v: Any, tau: Any, n: int, z: Any, rank: int) -> None:
    """Turn eigenvectors of T (rows of z) into those of the matrix it was reduced from."""
    zero = z.dtype.type(0)
    j = n - 2
    while j > 0:
        # Two reflectors per pass: H(j-1) H(j) row, with their inner product known beforehand.
        v[j, j] = 0
        first, second = v[j, j:n], v[j - 1, j:n]
        overlap = _dot(first, second)
        for r in range(rank):
            row = z[r, j:n]
            dot1, dot2 = zero, zero
            for i in range(row.shape[0]):
                dot1 += first[i] * row[i]
                dot2 += second[i] * row[i]
            dot1 *= tau[j]
            dot2 = tau[j - 1] * (dot2 - dot1 * overlap)
            for i in range(row.shape[0]):
                row[i] -= dot1 * first[i] + dot2 * second[i]
        j -= 2
    if j == 0:
        for r in range(rank):
            row = z[r, 1:n]
            _subtract(row, tau[0] * _dot(v[0, 1:n], row), v[0, 1:n])


@_jit
def _lift(x: Any, z: Any, rank: int, out: Any) -> None:
    """Map eigenvectors of XX' to those of X'X: w = X'z, orthonormalised.

    Scaling a short X'z to unit length magnifies what is left of the larger directions in z;
    one Gram-Schmidt pass, largest first, takes it out.
    """
    for r in range(rank):
        row = out[r]
        row[:] = 0
        for t in range(x.shape[0]):
            _subtract(row, -z[r, t], x[t])
        for s in range(r):
            _subtract(row, _dot(row, out[s]), out[s])
        row *= row.dtype.type(1 / math.sqrt(_dot(row, row)))


@_jit
def orient(w: Any, rank: int) -> None:
    """Choose each row's sign so that its largest component is positive: same input, same bytes."""
    for r in range(rank):
        largest = 0
        for j in range(1, w.shape[1]):
            if abs(w[r, j]) > abs(w[r, largest]):
                largest = j
        if w[r, largest] < 0:
            for j in range(w.shape[1]):
                w[r, j] = -w[r, j]


@_jit
def solve(
    tokens: Any, offsets: Any, k: int, tolerances: Any, bases: Any, values: Any, ranks: Any
) -> None:
    """Find the leading eigenpairs of the second moments of a batch of documents.

    Parameters
    ----------
    tokens
        Token vectors of all documents, one after the other. Shape: (tokens, d), float32.
    offsets
        Document i owns the rows ``offsets[i]:offsets[i + 1]``, at least one. Shape: (documents + 1,).
    k
        Number of directions to look for, at most d.
    tolerances
        An eigenvalue below this share of the document's largest counts as zero.
        Shape: (documents,), float64.
    bases
        Receives the eigenvectors, rows beyond the rank untouched. Shape: (documents, k, d).
    values
        Receives the eigenvalues, descending. Shape: (documents, k), float64.
    ranks
        Receives the number of directions found, or -1 where the vectors could not be told
        apart and another solver has to be asked. Shape: (documents,).
    """
    d = tokens.shape[1]
    dtype = tokens.dtype
    a = np.empty((d, d), dtype)
    v = np.empty((d, d), dtype)
    tau = np.empty(d, dtype)
    diagonal = np.empty(d, np.float64)
    off = np.empty(d, np.float64)
    start = np.empty(k, np.float64)
    z = np.empty((k, d), np.float64)
    rotated = np.empty((k, d), dtype)
    forward = np.empty((d, k), np.float64)
    backward = np.empty((d, k), np.float64)
    for document in range(offsets.shape[0] - 1):
        x = tokens[offsets[document] : offsets[document + 1]]
        m = x.shape[0]
        dual = m < d
        n = m if dual else d
        wanted = min(k, n)
        if dual:
            second_moment(np.ascontiguousarray(x.T), a)
        else:
            second_moment(x, a)
        _tridiagonalise(a, n, diagonal, off, v, tau)
        width = _largest_eigenvalues(diagonal, off, n, wanted, start)
        found = values[document]
        found[:wanted] = start[:wanted]
        _eigenvectors(diagonal, off, n, wanted, found[:wanted], z, forward, backward)
        rank = 0
        while rank < wanted and found[rank] > tolerances[document] * found[0]:
            rank += 1
        # No direction at all: the squares of huge tokens have overflowed.
        if rank == 0 or not _is_sound(z, found, start, width, n, rank):
            ranks[document] = -1
            continue
        ranks[document] = rank
        basis = bases[document]
        target = rotated if dual else basis
        for r in range(rank):
            for i in range(n):
                target[r, i] = z[r, i]
        _apply_reflectors(v, tau, n, target, rank)
        if dual:
            _lift(x, rotated, rank, basis)
        orient(basis, rank)
