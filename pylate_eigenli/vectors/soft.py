"""Soft filters without eigenvectors: packed vectors directly from second moments.

If all directions are kept, the soft filter x / (x + tau) of a document's moment M is the matrix
M (M + t I)^-1 = I - t (M + t I)^-1, where t is tau times the trace. This takes one inverse of a
positive definite matrix. A packed vector holds the whole matrix for any number of directions, so
an index that stores only vectors needs no eigenvectors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..spectral.kernels.compiled import precise, reordered
from ..spectral.kernels.moments import BLOCK, in_whole_lanes, padded, second_moment
from ..spectral.kernels.simd import LANES, load, splat, store
from ..spectral.kernels.threads import for_ranges
from ..spectral.kernels.tiers import Tiered
from ..tokens import TokenBatch
from .packing import pack, packed_dim

_DOCUMENTS_PER_TASK = 16
_PIVOTS = 4


@precise
def _invert_pivots(a: Any, p: int, out: Any) -> None:
    """Write the inverse of the positive definite a[p : p + 4, p : p + 4] to out."""
    for i in range(_PIVOTS):
        for j in range(i, _PIVOTS):
            out[i, j] = out[j, i] = a[p + i, p + j]
    for i in range(_PIVOTS):
        pivot = 1 / out[i, i]
        out[i, i] = 1
        for j in range(_PIVOTS):
            out[i, j] *= pivot
        for other in range(_PIVOTS):
            if other != i:
                factor = out[other, i]
                out[other, i] = 0
                for j in range(_PIVOTS):
                    out[other, j] -= factor * out[i, j]


@precise
def _negative_inverse(a: Any) -> None:
    """Replace a positive definite matrix by its negative inverse, in the upper blocks only.

    Gauss-Jordan elimination with blocks P of four pivots. Let U be the rows of the pivots and
    V = (A_PP)^-1 U. Each step subtracts U'V from the rest of the matrix, replaces the rows of the
    pivots by V, and replaces A_PP by -(A_PP)^-1.
    """
    n = a.shape[0]
    inverse = np.empty((_PIVOTS, _PIVOTS), np.float64)
    u, v = np.empty((_PIVOTS, n), np.float32), np.empty((_PIVOTS, n), np.float32)
    for p in range(0, n, _PIVOTS):
        _invert_pivots(a, p, inverse)
        for q in range(_PIVOTS):
            for c in range(p + q):
                u[q, c] = a[c, p + q]
            for c in range(p + q, n):
                u[q, c] = a[p + q, c]
        for q in range(_PIVOTS):
            k0, k1 = splat(np.float32(inverse[q, 0])), splat(np.float32(inverse[q, 1]))
            k2, k3 = splat(np.float32(inverse[q, 2])), splat(np.float32(inverse[q, 3]))
            for c in range(0, n, LANES):
                left = k0 * load(u[0], c) + k1 * load(u[1], c)
                store(v[q], c, left + (k2 * load(u[2], c) + k3 * load(u[3], c)))
        for i in range(0, n, 2):
            r0, r1 = a[i], a[i + 1]
            u0, u1, u2, u3 = splat(u[0, i]), splat(u[1, i]), splat(u[2, i]), splat(u[3, i])
            w0, w1 = splat(u[0, i + 1]), splat(u[1, i + 1])
            w2, w3 = splat(u[2, i + 1]), splat(u[3, i + 1])
            for c in range(i // LANES * LANES, n, LANES):
                v0, v1, v2, v3 = load(v[0], c), load(v[1], c), load(v[2], c), load(v[3], c)
                store(r0, c, (load(r0, c) - u0 * v0 - u1 * v1) - (u2 * v2 + u3 * v3))
                store(r1, c, (load(r1, c) - w0 * v0 - w1 * v1) - (w2 * v2 + w3 * v3))
        for q in range(_PIVOTS):
            for c in range(p):
                a[c, p + q] = v[q, c]
            for c in range(p, n):
                a[p + q, c] = v[q, c]
            for c in range(_PIVOTS):
                a[p + q, p + c] = -inverse[q, c]


@reordered
def _square(row: Any) -> Any:
    total = np.float32(0)
    for c in range(row.shape[0]):
        total += row[c] * row[c]
    return total


@precise
def _soft(tokens: Any, offsets: Any, taus: Any, out: Any, precise: Any) -> None:
    """Write the packed soft matrix of each document to a row of out.

    ``precise`` receives False if float32 is not accurate enough. Errors grow with the square of the
    condition number, which is large if few directions hold the energy and tau is small. The squares
    of tiny or huge tokens can also underflow or overflow.
    """
    d = tokens.shape[1]
    size = padded(d, BLOCK)
    matrix = np.empty((size, size), np.float32)
    longest = 0
    if size > d:
        for document in range(out.shape[0]):
            longest = max(longest, offsets[document + 1] - offsets[document])
    buffer = np.empty((padded(longest, LANES), size), np.float32)
    for document in range(out.shape[0]):
        x = tokens[offsets[document] : offsets[document + 1]]
        if size > d:
            x = in_whole_lanes(x, buffer)
        second_moment(x, matrix)
        trace = 0.0
        for i in range(d):
            trace += matrix[i, i]
        squares = 0.0
        for i in range(d):
            row = matrix[i, i:d]
            squares += 2 * _square(row) - row[0] * row[0]
        precise[document] = 0 < squares <= 2 * d * taus[document] * trace * trace
        if not precise[document]:
            continue
        t = np.float32(taus[document] * trace)
        for i in range(size):
            matrix[i, i] += t
        _negative_inverse(matrix)
        root = np.float32(math.sqrt(2.0)) * t
        packed, start = out[document], d
        for i in range(d):
            packed[i] = 1 + t * matrix[i, i]
            target, row = packed[start : start + d - 1 - i], matrix[i, i + 1 : d]
            for j in range(target.shape[0]):
                target[j] = root * row[j]
            start += d - 1 - i


def soft_vectors(batch: TokenBatch, taus: NDArray[np.float64]) -> Tensor:
    """Pack M (M + t I)^-1 of each document: a soft filter that keeps all directions.

    ``taus`` (documents,) has the shares of the energy that get the weight 1/2. Shape of the result:
    (documents, d (d + 1) / 2), float32.
    """
    tokens = batch.tokens.float().cpu().contiguous().numpy()
    out = np.empty((len(batch), packed_dim(batch.dim)), np.float32)
    precise = np.zeros(len(batch), np.bool_)

    def task(part: slice) -> None:
        owned = batch.offsets[part.start : part.stop + 1]
        arguments = tokens, owned, taus[part], out[part], precise[part]
        _compiled_soft(*arguments)
        _soft_by_lapack(*arguments)

    for_ranges(task, len(out), _DOCUMENTS_PER_TASK)
    return torch.from_numpy(out)


def _soft_by_lapack(
    tokens: NDArray[np.float32],
    offsets: NDArray[np.int64],
    taus: NDArray[np.float64],
    out: NDArray[np.float32],
    precise: NDArray[np.bool_],
) -> None:
    """Make the vectors that are not precise yet; parameters as for the compiled kernel."""
    for i in np.flatnonzero(~precise):
        x = torch.from_numpy(tokens[offsets[i] : offsets[i + 1]]).double()
        out[i] = pack(_soft_projector(x, taus[i])[None])[0].numpy()
        precise[i] = True


_compiled_soft = Tiered(_soft, _soft_by_lapack)


def _soft_projector(x: Tensor, tau: float) -> Tensor:
    """Return M (M + t I)^-1 for the tokens of one document, in float64."""
    moment = x.mT @ x
    t = tau * moment.trace()
    identity = torch.eye(x.shape[1], dtype=x.dtype)
    return identity - t * torch.linalg.inv(moment + t * identity) if t > 0 else moment
