"""Scores of chosen documents by the definition, straight from their stored rows.

Every document is scored by the same sequence of operations wherever it is and whatever is scored
beside it, so equal documents get equal scores to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray
from torch import Tensor

from ..spectral.kernels.compiled import reordered
from ..spectral.kernels.threads import for_ranges
from .rows import StoredRows

_DOCUMENTS_PER_TASK = 64
_NO_SCALES = np.zeros(0, np.float32)


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


@reordered
def _score(
    basis: Any, scales: Any, offsets: Any, floors: Any, documents: Any, tokens: Any, out: Any
) -> None:
    """Write (1 - floor) sum_ij <q_i, w_j>^2 + floor sum_i |q_i|^2 of the documents to out."""
    d = basis.shape[1]
    bits = np.empty(d, np.uint32)
    row = bits.view(np.float32)
    mass = 0.0
    for t in range(tokens.shape[0]):
        for i in range(d):
            mass += np.float64(tokens[t, i]) * np.float64(tokens[t, i])
    for n in range(documents.shape[0]):
        document = documents[n]
        caught = 0.0
        for r in range(offsets[document], offsets[document + 1]):
            _decode(basis[r], scales[r] if scales.shape[0] > 0 else np.float32(1), bits, row)
            for t in range(tokens.shape[0]):
                token = tokens[t]
                dot = np.float32(0)
                for i in range(d):
                    dot += row[i] * token[i]
                caught += np.float64(dot) * np.float64(dot)
        floor = np.float64(floors[document])
        out[n] = (1 - floor) * caught + floor * mass


@reordered
def _maxsim(rows: Any, scales: Any, offsets: Any, documents: Any, tokens: Any, out: Any) -> None:
    """Write sum_i max_j <q_i, d_j> of the documents to out."""
    d = rows.shape[1]
    bits = np.empty(d, np.uint32)
    row = bits.view(np.float32)
    best = np.empty(tokens.shape[0], np.float32)
    for n in range(documents.shape[0]):
        document = documents[n]
        best[:] = -np.inf
        for r in range(offsets[document], offsets[document + 1]):
            _decode(rows[r], scales[r] if scales.shape[0] > 0 else np.float32(1), bits, row)
            for t in range(tokens.shape[0]):
                token = tokens[t]
                dot = np.float32(0)
                for i in range(d):
                    dot += row[i] * token[i]
                best[t] = max(best[t], dot)
        total = 0.0
        for t in range(tokens.shape[0]):
            total += np.float64(best[t])
        out[n] = total


def _readable(rows: StoredRows) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Return the values of rows, as compiled code can read them, and their scales."""
    values = rows.values
    if values.dtype == np.float16:
        values = values.view(np.uint16)  # compiled code knows no halves
    return values, _NO_SCALES if rows.scales is None else rows.scales


def _in_parallel(
    documents: NDArray[np.int64],
    score: Callable[[NDArray[np.int64], NDArray[np.float32]], None],
) -> NDArray[np.float32]:
    """Return what ``score`` writes for the documents, a part of them per task."""
    n = len(documents)
    out = np.empty(n, np.float32)
    for_ranges(lambda part: score(documents[part], out[part]), n, _DOCUMENTS_PER_TASK)
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
    values, scales = _readable(bases)

    def scores(tokens: NDArray[np.float32]) -> NDArray[np.float32]:
        return _in_parallel(
            documents,
            lambda part, out: _score(values, scales, offsets, floors, part, tokens, out),
        )

    found = scores(query.contiguous().numpy())
    if against is not None:
        found -= float(query.square().sum()) * scores(against.numpy())
    return found


def maxsim_scores(
    tokens: StoredRows,
    offsets: NDArray[np.int64],
    documents: NDArray[np.int64],
    query: Tensor,
) -> NDArray[np.float32]:
    """Score documents by MaxSim of their tokens; parameters as for :func:`subspace_scores`."""
    values, scales = _readable(tokens)
    of_query = query.contiguous().numpy()
    return _in_parallel(
        documents, lambda part, out: _maxsim(values, scales, offsets, part, of_query, out)
    )
