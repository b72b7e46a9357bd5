"""Approximate scores of all documents, from 8-bit codes of their packed projectors.

A document's score is one inner product of packed matrices (:mod:`pylate_eigenli.vectors.packing`). At
8 bits such a vector takes d (d + 1) / 2 bytes, about as much as the float16 basis itself, and is
compared with a query many times faster. The rounding errors are known, so screening can say by
how much a score may be off: whatever could be among the best is then scored exactly.

That takes errors that are independent of each other, which those of regular vectors are not: where
most entries are small, say, all of them are rounded to zero. So every vector is moved by the same
random fractions of a step before it is rounded, and its scores are moved back (a subtractive
dither). The errors are then uniform and independent, whatever the vectors are.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..vectors.quantization import Codes, code_width
from ..vectors.packing import pack_subspaces, packed_dim

# A weighted sum of independent uniform errors stays within this many standard deviations but once
# in 10^13 times.
_DEVIATIONS = 8.0
_STEPS = 127.5  # from zero to the largest entry at 8 bits
_BYTES_AT_ONCE = 32 << 20  # of packed projectors


class Panel:
    """Rounded packed projectors of some documents.

    Parameters
    ----------
    bases
        Shape: (directions of all documents, d), float32.
    offsets
        Document i owns the rows ``offsets[i]:offsets[i + 1]``. Shape: (documents + 1,).
    floors
        See :mod:`pylate_eigenli.spectral.subspace`. Shape: (documents,).
    """

    def __init__(
        self, bases: Tensor, offsets: NDArray[np.int64], floors: NDArray[np.float32]
    ) -> None:
        n, dim = len(offsets) - 1, packed_dim(bases.shape[1])
        self._codes = Codes(
            np.empty((n, code_width(dim, 8)), np.uint8), np.empty(n, np.float32), 8, dim
        )
        self._dither = torch.rand(dim, generator=torch.Generator().manual_seed(0)) - 0.5
        at_once = max(1, _BYTES_AT_ONCE // (4 * dim))
        for begin in range(0, n, at_once):
            part = slice(begin, min(begin + at_once, n))
            packed = pack_subspaces(bases, offsets[begin : part.stop + 1], floors[part])
            codes = Codes.encode(self._dithered(packed), 8)
            self._codes.values[part], self._codes.scales[part] = codes.values, codes.scales

    def _dithered(self, packed: Tensor) -> Tensor:
        """Move vectors (n, d (d + 1) / 2), in place, by fractions of the step they get."""
        step = packed.new_zeros(len(packed), 1)
        # Moving the largest entry changes the step a little; doing so again hardly does.
        for _ in range(2):
            wanted = torch.linalg.vector_norm(packed, math.inf, dim=1, keepdim=True) / _STEPS
            packed.addcmul_(wanted - step, self._dither)
            step = wanted
        return packed

    @staticmethod
    def nbytes_per_document(d: int) -> int:
        """Return the memory one document takes."""
        return packed_dim(d) + 4

    @property
    def nbytes(self) -> int:
        """The memory the panel takes."""
        return self._codes.values.nbytes + self._codes.scales.nbytes

    def scores(self, queries: Tensor) -> NDArray[np.float32]:
        """Return approximate scores of packed queries (n, d (d + 1) / 2). Shape: (n, documents)."""
        moved = (queries @ self._dither).numpy()[:, None] * self._codes.scales
        return np.asarray(self._codes.scores(queries) - moved)

    def margin(self, queries: Tensor) -> NDArray[np.float64]:
        """Return how far from the truth a score of each query may be. Shape: (n,)."""
        norms = torch.linalg.vector_norm(queries, dim=1).double().numpy()
        # Rounding to a step s is off by s / sqrt(12) on average.
        deviation = float(self._codes.scales.max(initial=0.0)) / math.sqrt(12)
        return np.asarray(_DEVIATIONS * deviation * norms)
