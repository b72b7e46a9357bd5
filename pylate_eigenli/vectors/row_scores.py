"""Scores of chosen documents by the definition, straight from their stored rows.

Every document is scored by the same sequence of operations wherever it is and whatever is scored
beside it, so equal documents get equal scores to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray
from torch import Tensor

from ..spectral.kernels.compiled import precise
from ..spectral.kernels.moments import padded
from ..spectral.kernels.simd import LANES, load, splat, store, totals
from ..spectral.kernels.threads import for_ranges
from .rows import StoredRows

_DOCUMENTS_PER_TASK = 16
_NONE = np.zeros(0, np.float32)


def _decode(stored: Any, scale: Any, bits: Any, row: Any) -> None:
    """Write a stored row to ``row`` as float32; ``bits`` is the same memory as integers."""
    raise NotImplementedError("only its compiled forms below are called")


@overload(_decode)
def _compiled_decode(stored: Any, scale: Any, bits: Any, row: Any) -> Any:
    if stored.dtype == types.uint16:

        def decode_half(stored: Any, scale: Any, bits: Any, row: Any) -> None:
            # The fields of a half become those of a float, its exponent 112 higher. One that is
            # zero says that there is no leading 1: it gets one that is then subtracted. No number
            # on the way is so small that a processor told to flush such to zero (some libraries
            # do that when they are loaded) would give other scores than another.
            for i in range(stored.shape[0]):
                half = np.uint32(stored[i]) & np.uint32(0x7FFF)
                is_small = np.uint32((half & np.uint32(0x7C00)) == 0)
                bits[i] = (half << np.uint32(13)) + ((np.uint32(112) + is_small) << np.uint32(23))
            for i in range(row.shape[0]):
                is_small = (stored[i] & np.uint16(0x7C00)) == 0
                row[i] -= np.float32(2.0**-14) if is_small else np.float32(0)
            for i in range(stored.shape[0]):
                bits[i] |= (np.uint32(stored[i]) & np.uint32(0x8000)) << np.uint32(16)

        return decode_half

    def decode_number(stored: Any, scale: Any, bits: Any, row: Any) -> None:
        for i in range(stored.shape[0]):
            row[i] = scale * np.float32(stored[i])

    return decode_number


@precise
def _products(values: Any, scales: Any, tokens: Any, bits: Any, rows: Any, out: Any) -> None:
    """Write the inner products of stored rows (n, d) with tokens to out, two rows at a time.

    Tokens and the two buffers are padded with zeros to whole lanes, and there is a multiple of four
    of them; out has a row for every pair. ``bits`` and ``rows`` are the same memory.
    """
    n, d = values.shape
    none = splat(np.float32(0))
    for r in range(0, n, 2):
        for i in range(2):
            at = min(r + i, n - 1)
            scale = scales[at] if scales.shape[0] > 0 else np.float32(1)
            _decode(values[at], scale, bits[i, :d], rows[i, :d])
        for t in range(0, tokens.shape[0], 4):
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = none
            for c in range(0, tokens.shape[1], LANES):
                x, y = load(rows[0], c), load(rows[1], c)
                t0, t1 = load(tokens[t], c), load(tokens[t + 1], c)
                t2, t3 = load(tokens[t + 2], c), load(tokens[t + 3], c)
                a0, a1, a2, a3 = a0 + x * t0, a1 + x * t1, a2 + x * t2, a3 + x * t3
                b0, b1, b2, b3 = b0 + y * t0, b1 + y * t1, b2 + y * t2, b3 + y * t3
            store(out[r], t, totals(a0, a1, a2, a3))
            store(out[r + 1], t, totals(b0, b1, b2, b3))


@precise
def _score(
    values: Any, scales: Any, offsets: Any, floors: Any, documents: Any, tokens: Any, out: Any
) -> None:
    """Write the scores of documents to out, for tokens in whole lanes and a multiple of four.

    (1 - floor) sum_ij <q_i, w_j>^2 + floor sum_i |q_i|^2 if there are floors, otherwise MaxSim,
    sum_i max_j <q_i, d_j>. Tokens of zeros change neither.
    """
    bits = np.zeros((2, tokens.shape[1]), np.uint32)
    rows = bits.view(np.float32)
    longest = 0
    for n in range(documents.shape[0]):
        longest = max(longest, offsets[documents[n] + 1] - offsets[documents[n]])
    products = np.empty((padded(longest, 2), tokens.shape[0]), np.float32)
    mass = 0.0
    for t in range(tokens.shape[0]):
        for i in range(tokens.shape[1]):
            mass += np.float64(tokens[t, i]) * np.float64(tokens[t, i])
    for n in range(documents.shape[0]):
        begin, end = offsets[documents[n]], offsets[documents[n] + 1]
        owned = scales[begin:end] if scales.shape[0] > 0 else scales
        _products(values[begin:end], owned, tokens, bits, rows, products)
        total = 0.0
        if floors.shape[0] > 0:
            for r in range(end - begin):
                for t in range(tokens.shape[0]):
                    total += np.float64(products[r, t]) * np.float64(products[r, t])
            floor = np.float64(floors[documents[n]])
            total = (1 - floor) * total + floor * mass
        else:
            for t in range(tokens.shape[0]):
                best = np.float32(-np.inf)
                for r in range(end - begin):
                    best = max(best, products[r, t])
                total += np.float64(best)
        out[n] = total


def _readable(rows: StoredRows) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Return the values of rows, as compiled code can read them, and their scales."""
    values = rows.values
    if values.dtype == np.float16:
        values = values.view(np.uint16)  # compiled code knows no halves
    return values, _NONE if rows.scales is None else rows.scales


def _scores(
    stored: StoredRows,
    offsets: NDArray[np.int64],
    floors: NDArray[np.float32],
    documents: NDArray[np.int64],
    tokens: Tensor,
) -> NDArray[np.float32]:
    values, scales = _readable(stored)
    m, d = tokens.shape
    whole = np.zeros((padded(m, 4), padded(d, LANES)), np.float32)
    whole[:m, :d] = tokens.numpy()
    out = np.empty(len(documents), np.float32)
    for_ranges(
        lambda part: _score(values, scales, offsets, floors, documents[part], whole, out[part]),
        len(documents),
        _DOCUMENTS_PER_TASK,
    )
    return out


def subspace_scores(
    bases: StoredRows,
    offsets: NDArray[np.int64],
    floors: NDArray[np.float32],
    documents: NDArray[np.int64],
    query: Tensor,
    against: Tensor | None = None,
) -> NDArray[np.float32]:
    """Score documents (n,) by how much of a query (tokens, d) lies in their subspaces.

    Document i owns the rows ``offsets[i]:offsets[i + 1]`` of the bases and has ``floors[i]``; see
    :class:`pylate_eigenli.spectral.background.Queries` for ``against``. Shape of the result: (n,).
    """
    found = _scores(bases, offsets, floors, documents, query)
    if against is not None:
        found -= float(query.square().sum()) * _scores(bases, offsets, floors, documents, against)
    return found


def maxsim_scores(
    tokens: StoredRows,
    offsets: NDArray[np.int64],
    documents: NDArray[np.int64],
    query: Tensor,
) -> NDArray[np.float32]:
    """Score documents by MaxSim of their tokens; parameters as for :func:`subspace_scores`."""
    return _scores(tokens, offsets, _NONE, documents, query)
