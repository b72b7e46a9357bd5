"""The row of the mean token: what all queries read of a document, kept apart from its code.

The tokens of real models point about the same way: a query token is u + x, with u common to all
queries. A score sum_i (u + x_i)' M (u + x_i) then reads the row M u of every document's matrix M
n times over, and an error there drowns the rest. The symmetric matrices w u' + u w' are a subspace
of dimension d. A :class:`MeanRow` gives coordinates in it, and what is left has no such row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..spectral.kernels.compiled import reordered
from ..spectral.kernels.threads import for_ranges

_ROOT = math.sqrt(2.0)


@reordered
def _products(packed: Any, u: Any, out: Any) -> None:
    """Write M u of packed matrices M to out (n, d)."""
    d = u.shape[0]
    half = np.float32(math.sqrt(0.5))
    for n in range(packed.shape[0]):
        vector, row = packed[n], out[n]
        for i in range(d):
            row[i] = vector[i] * u[i]
        start = d
        for i in range(d - 1):
            part, rest, target = vector[start : start + d - 1 - i], u[i + 1 :], row[i + 1 :]
            total, factor = np.float32(0), half * u[i]
            for j in range(part.shape[0]):
                total += part[j] * rest[j]
                target[j] += factor * part[j]
            row[i] += half * total
            start += d - 1 - i


@reordered
def _add_matrices(packed: Any, w: Any, u: Any, sign: float) -> None:
    """Add the packed matrices sign (w u' + u w')."""
    d = u.shape[0]
    for n in range(packed.shape[0]):
        vector, row = packed[n], w[n]
        for i in range(d):
            vector[i] += np.float32(2 * sign) * row[i] * u[i]
        start = d
        for i in range(d - 1):
            part, us, ws = vector[start : start + d - 1 - i], u[i + 1 :], row[i + 1 :]
            of_u, of_w = np.float32(sign * _ROOT) * row[i], np.float32(sign * _ROOT) * u[i]
            for j in range(part.shape[0]):
                part[j] += of_u * us[j] + of_w * ws[j]
            start += d - 1 - i


@dataclass(frozen=True)
class MeanRow:
    """The matrices w u' + u w' among packed symmetric matrices; the direction u has length 1."""

    direction: Tensor

    def coordinates(self, packed: Tensor) -> Tensor:
        """Return the coordinates of packed matrices (n, D) in an orthonormal basis. Shape: (n, d)."""
        vectors, u = packed.contiguous().numpy(), self.direction.numpy()
        products = np.empty((len(vectors), len(u)), np.float32)
        for_ranges(lambda part: _products(vectors[part], u, products[part]), len(vectors), 64)
        # Entries beside the diagonal count twice in an inner product, u' M u counts once.
        rows = torch.from_numpy(products)
        return _ROOT * rows + (1 - _ROOT) * torch.outer(rows @ self.direction, self.direction)

    def add(self, packed: Tensor, coordinates: Tensor, sign: float = 1.0) -> Tensor:
        """Add what coordinates (n, d) stand for, times sign, to packed matrices (n, D) in place."""
        along = torch.outer(coordinates @ self.direction, self.direction)
        w = ((coordinates - along) / _ROOT + along / 2).numpy()
        vectors, u = packed.numpy(), self.direction.numpy()
        for_ranges(lambda part: _add_matrices(vectors[part], w[part], u, sign), len(vectors), 64)
        return packed
