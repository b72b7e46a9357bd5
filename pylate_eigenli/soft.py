"""Soft projectors straight from the moments, with no eigenvectors at all.

With all directions kept, the soft filter x / (x + tau) of a document's moment M is the matrix
M (M + t I)^-1 = I - t (M + t I)^-1, where t is tau times the trace: one Cholesky factorisation.
A single vector holds the whole matrix whatever the number of directions, so an index of nothing
but vectors can be filled this way.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from .eigensolver import second_moment
from .parallel import for_ranges
from .tokens import TokenBatch
from .vectors import packed_dim

_jit = njit(
    nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"}
)
_DOCUMENTS_PER_TASK = 16
_BLOCK = 4


@_jit
def _factorise(a: Any) -> None:
    """Replace the lower triangle of a positive definite matrix by its Cholesky factor."""
    d = a.shape[0]
    for i in range(d):
        row = a[i]
        for j in range(i):
            x, y = row[:j], a[j, :j]
            total = row[j]
            for c in range(x.shape[0]):
                total -= x[c] * y[c]
            row[j] = total / a[j, j]
        x = row[:i]
        total = row[i]
        for c in range(x.shape[0]):
            total -= x[c] * x[c]
        row[i] = math.sqrt(total)


@_jit
def _invert_factor(a: Any, out: Any) -> None:
    """Write the inverse of the lower triangular a to out, row by row; zeros above the diagonal."""
    d = a.shape[0]
    for i in range(d):
        row = out[i]
        row[:] = 0
        row[i] = 1
        # Four rows above at a time, so that this one is loaded and stored once for all of them.
        whole = i // _BLOCK * _BLOCK
        for k in range(0, whole, _BLOCK):
            target = row[: k + _BLOCK]
            y0, y1, y2, y3 = out[k], out[k + 1], out[k + 2], out[k + 3]
            a0, a1, a2, a3 = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
            for c in range(target.shape[0]):
                target[c] -= (a0 * y0[c] + a1 * y1[c]) + (a2 * y2[c] + a3 * y3[c])
        for k in range(whole, i):
            target, y, scale = row[: k + 1], out[k], a[i, k]
            for c in range(target.shape[0]):
                target[c] -= scale * y[c]
        target = row[: i + 1]
        scale = 1 / a[i, i]
        for c in range(target.shape[0]):
            target[c] *= scale


@_jit
def _pack_complement(x: Any, t: Any, out: Any) -> None:
    """Write I - t X'X, packed, to out; X is lower triangular, with some rows to spare."""
    d = x.shape[1]
    root = x.dtype.type(-math.sqrt(2.0)) * t
    out[:] = 0
    for k in range(0, d, _BLOCK):
        end = min(k + _BLOCK, d)
        x[end : k + _BLOCK] = 0  # the last block may not be whole
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        start = d
        for i in range(end):
            a0, a1, a2, a3 = x0[i], x1[i], x2[i], x3[i]
            out[i] -= t * ((a0 * a0 + a1 * a1) + (a2 * a2 + a3 * a3))
            a0, a1, a2, a3 = root * a0, root * a1, root * a2, root * a3
            target = out[start : start + end - 1 - i]
            y0, y1, y2, y3 = x0[i + 1 :], x1[i + 1 :], x2[i + 1 :], x3[i + 1 :]
            for j in range(target.shape[0]):
                target[j] += (a0 * y0[j] + a1 * y1[j]) + (a2 * y2[j] + a3 * y3[j])
            start += d - 1 - i
    for i in range(d):
        out[i] += 1


@_jit
def _soft(tokens: Any, offsets: Any, tau: Any, out: Any) -> None:
    """Write the packed soft projector of each document to a row of out."""
    d = tokens.shape[1]
    moment = np.empty((d, d), tokens.dtype)
    inverse = np.empty((d + _BLOCK, d), tokens.dtype)
    for document in range(out.shape[0]):
        second_moment(tokens[offsets[document] : offsets[document + 1]], moment)
        trace = 0.0
        for i in range(d):
            trace += moment[i, i]
        if trace <= 0:
            out[document, :] = 0
            continue
        t = tokens.dtype.type(tau * trace)
        for i in range(d):
            moment[i, i] += t
        _factorise(moment)
        _invert_factor(moment, inverse)
        _pack_complement(inverse, t, out[document])


def soft_vectors(batch: TokenBatch, tau: float) -> Tensor:
    """Return the kernel vectors of documents under the soft filter, all directions kept.

    Parameters
    ----------
    batch
        Documents.
    tau
        The share of the energy that gets weight 1/2.

    Returns
    -------
    Shape: (documents, d (d + 1) / 2), float32: :func:`pylate_eigenli.vectors.pack` of each
    document's M (M + t I)^-1.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> soft_vectors(collect([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]), tau=1 / 3).round(decimals=3)
    tensor([[0.6670, 0.5000, 0.0000]])
    """
    tokens = batch.tokens.float().cpu().contiguous().numpy()
    out = np.empty((len(batch), packed_dim(batch.dim)), np.float32)

    def task(begin: int, end: int) -> None:
        _soft(tokens, batch.offsets[begin : end + 1], tau, out[begin:end])

    for_ranges(task, len(out), _DOCUMENTS_PER_TASK)
    return torch.from_numpy(out)
