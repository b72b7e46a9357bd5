"""Top eigenpairs of a document's second moment, compiled for one CPU core per document.

LAPACK computes all d eigenvectors of a d x d matrix, although a document keeps only k, and for
small matrices it spends most of its time on calls between its building blocks. This solver computes
only the k eigenpairs, in one compiled loop without the interpreter lock:

1. the moment X'X, or the smaller Gram matrix XX' for a document with fewer tokens than dimensions
   (:mod:`~pylate_eigenli.spectral.kernels.moments`);
2. the reduction to tridiagonal form (:mod:`~pylate_eigenli.spectral.kernels.householder`);
3. its k largest eigenpairs (:mod:`~pylate_eigenli.spectral.kernels.tridiagonal`);
4. the transformation of the eigenvectors back to the original space, for a Gram matrix through X'.

Eigenvectors of (nearly) equal eigenvalues may not be orthogonal. The solver checks every document,
and the caller (:mod:`pylate_eigenli.spectral.subspace`) solves the few that fail with LAPACK.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .compiled import precise
from .householder import dot, reflect_back, tridiagonalise
from .moments import BLOCK, gram, in_whole_lanes, padded, second_moment
from .simd import LANES, load, splat, store
from .tridiagonal import eigenvectors, largest_eigenvalues

_ORTHOGONALITY = np.float32(1e-6)  # accepted inner product of two unit eigenvectors
_OVERLAP = np.float32(0.1)  # largest inner product to correct; above, they may be the same vector
_NEGLIGIBLE = 1e-18  # components set to zero, because subnormal products are slow


@precise
def _subtract(row: Any, scale: Any, x: Any) -> None:
    for c in range(0, row.shape[0], LANES):
        store(row, c, load(row, c) - splat(scale) * load(x, c))


@precise
def _normalise(row: Any) -> None:
    scale = splat(np.float32(1 / math.sqrt(dot(row, row, 0, row.shape[0]))))
    for c in range(0, row.shape[0], LANES):
        store(row, c, load(row, c) * scale)


@precise
def _orthonormalise(z: Any, rank: int) -> bool:
    """Orthonormalise the first rows of z; return False if two rows overlap too much.

    Eigenvectors of close eigenvalues may overlap slightly. Subtracting the overlap from the later
    row only mixes in an eigenvector of nearly the same eigenvalue.
    """
    for r in range(rank):
        changed = False
        for s in range(r):
            overlap = dot(z[r], z[s], 0, z.shape[1])
            if not abs(overlap) <= _OVERLAP:
                return False
            if abs(overlap) > _ORTHOGONALITY:
                _subtract(z[r], overlap, z[s])
                changed = True
        if changed:
            _normalise(z[r])
    return True


@precise
def _lift(x: Any, z: Any, rank: int, out: Any) -> None:
    """Map eigenvectors z of XX' to eigenvectors w = X'z of X'X, orthonormalised.

    Scaling a short X'z to unit length magnifies the remainders of larger directions in z. One
    Gram-Schmidt pass, from the largest eigenvalue on, removes them.
    """
    m, d = x.shape
    none = splat(np.float32(0))
    for r in range(0, rank, 4):
        z0, z1, z2, z3 = z[r], z[r + 1], z[r + 2], z[r + 3]
        for c in range(0, d, LANES):
            s0 = s1 = s2 = s3 = none
            for t in range(m):
                y = load(x[t], c)
                s0, s1 = s0 + splat(z0[t]) * y, s1 + splat(z1[t]) * y
                s2, s3 = s2 + splat(z2[t]) * y, s3 + splat(z3[t]) * y
            store(out[r], c, s0)
            store(out[r + 1], c, s1)
            store(out[r + 2], c, s2)
            store(out[r + 3], c, s3)
    for r in range(rank):
        for s in range(r):
            _subtract(out[r], dot(out[r], out[s], 0, out.shape[1]), out[s])
        _normalise(out[r])


@precise
def orient(w: Any, rank: int) -> None:
    """Flip rows so that their largest component is positive, which makes results reproducible."""
    for r in range(rank):
        row = w[r]
        high, low = row[0], row[0]
        for j in range(row.shape[0]):
            high, low = max(high, row[j]), min(low, row[j])
        flip = -low > high
        if -low == high:  # a tie: the first of the largest components decides
            for j in range(row.shape[0]):
                if abs(row[j]) == high:
                    flip = row[j] < 0
                    break
        if flip:
            for j in range(row.shape[0]):
                row[j] = -row[j]


@precise
def solve(
    tokens: Any, offsets: Any, k: int, tolerances: Any, bases: Any, values: Any, ranks: Any
) -> None:
    """Write the leading eigenpairs of the second moments of a batch of documents.

    Document i owns the rows ``offsets[i]:offsets[i + 1]`` of tokens (n, d), at least one; k is at
    most d. An eigenvalue below ``tolerances[i]`` times the largest counts as zero. Eigenvectors go
    to bases (documents, k, d), where rows beyond the rank stay unchanged, eigenvalues to values
    (documents, k), descending, and the numbers of directions to ranks (documents,): -1 if the
    solver failed and LAPACK has to solve the document.
    """
    d = tokens.shape[1]
    size, wide = padded(d, BLOCK), padded(k, LANES)
    longest = 0
    for document in range(offsets.shape[0] - 1):
        m = offsets[document + 1] - offsets[document]
        if m < d or size > d:
            longest = max(longest, m)
    buffer = np.empty((padded(longest, LANES), size), np.float32)
    matrix = np.empty(size * size, np.float32)
    reflections = np.empty(size * size, np.float32)
    tau = np.empty(size, np.float32)
    diagonal = np.empty(size, np.float64)
    off = np.empty(size, np.float64)
    start = np.empty(k, np.float64)
    settled = np.empty(k, np.bool_)
    z = np.empty((size, wide), np.float64)
    rotated = np.empty(wide * size, np.float32)
    lifted = np.empty((wide, size), np.float32)
    for document in range(offsets.shape[0] - 1):
        x = tokens[offsets[document] : offsets[document + 1]]
        m = x.shape[0]
        dual = m < d
        n = m if dual else d
        wanted = min(k, n)
        if dual or size > d:
            x = in_whole_lanes(x, buffer)
        side = padded(m, LANES) if dual else size
        a = matrix[: side * side].reshape(side, side)
        if dual:
            gram(x, a)
        else:
            second_moment(x, a)
        v = reflections[: side * side].reshape(side, side)
        tridiagonalise(a, n, diagonal, off, v, tau)
        width = largest_eigenvalues(diagonal[:n], off, wanted, start)
        found = values[document, :wanted]
        for r in range(wanted):
            found[r] = start[r]
        eigenvectors(diagonal[:n], off, found, settled, z)
        rank = 0
        while rank < wanted and found[rank] > tolerances[document] * found[0]:
            rank += 1
        # A rank of zero means that the squares of huge tokens have overflowed.
        sound = rank > 0
        for r in range(rank):
            sound = sound and settled[r] and abs(found[r] - start[r]) <= 8 * width
        rows = padded(rank, 4)
        back = rotated[: rows * side].reshape(rows, side)
        back[:] = 0
        for i in range(n):
            for r in range(rank):
                if abs(z[i, r]) > _NEGLIGIBLE:
                    back[r, i] = z[i, r]
        if not (sound and _orthonormalise(back, rank)):
            ranks[document] = -1
            continue
        ranks[document] = rank
        reflect_back(v, tau, n, back)
        directions = back
        if dual:
            _lift(x, back, rank, lifted)
            directions = lifted
        basis = bases[document]
        for r in range(rank):
            for j in range(d):
                basis[r, j] = directions[r, j]
        orient(basis, rank)
