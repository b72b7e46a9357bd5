"""The quadratic kernel: a symmetric matrix, and therefore a subspace, as one packed vector.

The packed vector K(x) of a token x holds the squares x_i^2 and the products sqrt(2) x_i x_j for
i < j, so that <K(x), K(y)> = <x, y>^2. Sums of packed vectors are packed symmetric matrices:
sum_i K(q_i) is the query's moment, and sum_j K(w_j) is the document's projector. Their inner
product is the late-interaction score. The dimension d (d + 1) / 2 does not depend on k.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..spectral.background import Queries
from ..spectral.kernels.compiled import precise
from ..spectral.kernels.threads import for_ranges
from ..tokens import TokenBatch


def packed_dim(d: int) -> int:
    """Return the dimension of the packed vectors of d-dimensional tokens.

    Examples
    --------
    >>> packed_dim(128)
    8256
    """
    return d * (d + 1) // 2


def unpacked_dim(width: int) -> int:
    """Return the dimension d of the tokens, given the dimension of their packed vectors."""
    d = math.isqrt(2 * width)
    if packed_dim(d) != width:
        raise ValueError(f"{width} is not d (d + 1) / 2 for any dimension d")
    return d


@lru_cache(maxsize=8)
def _positions(d: int, device: torch.device) -> Tensor:
    """Return the positions of the packed entries in the flattened matrix, the diagonal first."""
    i, j = torch.triu_indices(d, d, offset=1, device=device)
    diagonal = torch.arange(d, device=device)
    return torch.cat([diagonal * d + diagonal, i * d + j])


def pack(matrices: Tensor) -> Tensor:
    """Pack symmetric matrices (n, d, d) so that inner products become dot products.

    Shape of the result: (n, d (d + 1) / 2): the diagonal, then sqrt(2) times the upper triangle,
    row by row.

    Examples
    --------
    >>> import torch
    >>> pack(torch.tensor([[[1.0, 3.0], [3.0, 2.0]]]))
    tensor([[1.0000, 2.0000, 4.2426]])
    """
    d = matrices.shape[-1]
    packed = matrices.reshape(-1, d * d).index_select(1, _positions(d, matrices.device))
    packed[:, d:] *= math.sqrt(2.0)
    return packed


def unpack(vectors: Tensor) -> Tensor:
    """Invert :func:`pack`: vectors (n, d (d + 1) / 2) to symmetric matrices (n, d, d)."""
    d = unpacked_dim(vectors.shape[-1])
    flat = vectors.new_zeros(len(vectors), d * d)
    flat[:, _positions(d, vectors.device)] = vectors
    above = flat.view(-1, d, d).triu(1) / math.sqrt(2.0)
    return torch.diag_embed(vectors[:, :d]) + above + above.mT


def pack_moments(batch: TokenBatch) -> Tensor:
    """Return the packed vectors of queries: sum_i K(q_i). Shape: (queries, d (d + 1) / 2)."""
    return pack_subspaces(batch.tokens, batch.offsets, np.zeros(len(batch), np.float32))


def pack_queries(queries: Queries) -> Tensor:
    """Return the packed vectors of queries, with the background subtracted. Shape: (n, D)."""
    packed = pack_moments(queries.tokens)
    if queries.background is None or queries.shares is None:
        return packed
    mass = queries.shares * packed[:, : queries.tokens.dim].sum(1)
    return packed.addr_(mass, _packed_background(queries.background), alpha=-1)


@lru_cache(maxsize=4)
def _packed_background(rows: Tensor) -> Tensor:
    """Return what queries lose, computed once per tensor: searches get the same one every time."""
    return pack((rows.mT @ rows)[None])[0]


@precise
def _pack_bases(bases: Any, offsets: Any, floors: Any, out: Any) -> None:
    """Write the packed (1 - floor) W'W + floor I of each document to a row of out."""
    d = bases.shape[1]
    root = np.float32(math.sqrt(2.0))
    for document in range(out.shape[0]):
        packed = out[document]
        packed[:] = 0
        for r in range(offsets[document], offsets[document + 1]):
            w = bases[r]
            for i in range(d):
                packed[i] += w[i] * w[i]
            start = d
            for i in range(d - 1):
                target, rest, factor = packed[start : start + d - 1 - i], w[i + 1 :], root * w[i]
                for j in range(rest.shape[0]):
                    target[j] += factor * rest[j]
                start += d - 1 - i
        floor = floors[document]
        if floor != 0:
            for i in range(packed.shape[0]):
                packed[i] *= 1 - floor
            for i in range(d):
                packed[i] += floor


def pack_subspaces(
    bases: Tensor, offsets: NDArray[np.int64], floors: NDArray[np.float32]
) -> Tensor:
    """Return the packed vectors of documents: (1 - floor) sum_j K(w_j) plus floor times identity.

    Document i owns the rows ``offsets[i]:offsets[i + 1]`` of bases (directions, d), float32 on the
    CPU. The inner product of its vector with a packed query is the score.
    """
    out = np.empty((len(floors), packed_dim(bases.shape[1])), np.float32)
    rows = bases.contiguous().numpy()

    def task(part: slice) -> None:
        _pack_bases(rows, offsets[part.start : part.stop + 1], floors[part], out[part])

    for_ranges(task, len(out), 64)
    return torch.from_numpy(out)
