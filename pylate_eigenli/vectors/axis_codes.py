"""Low-bit codes of vectors that all have much in common.

The part of a vector along an *axis*, the direction of the vectors' mean, is kept aside as one float.
Documents differ in how much of it they have, by their length for instance, and in a code of few bits
that difference would drown what tells them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .quantization import Bits, Codes


@dataclass(frozen=True)
class AxisCodes:
    """Rounded vectors with an exact part along an axis.

    Parameters
    ----------
    codes
        Of what the vectors are otherwise.
    along
        What is to be added along the axis; None if there is no axis. Shape: (n,), float32.

    Examples
    --------
    >>> axis = torch.tensor([0.6, 0.8])
    >>> coded = AxisCodes.encode(torch.tensor([[6.1, 8.0], [-0.5, 1.2]]), 1, axis)
    >>> (coded.decode(axis) @ axis).round(decimals=2)
    tensor([10.0600,  0.6600])
    """

    codes: Codes
    along: NDArray[np.float32] | None = None

    @classmethod
    def encode(cls, vectors: Tensor, bits: Bits, axis: Tensor | None) -> AxisCodes:
        """Round vectors (n, D), float32, given an axis of length 1 (D,) or none."""
        if axis is None:
            return cls(Codes.encode(vectors, bits))
        along = vectors @ axis
        codes = Codes.encode(torch.addr(vectors, along, axis, alpha=-1), bits)
        # What rounding has put back along the axis is taken off again: that part is exact.
        return cls(codes, along.numpy() - codes.scores(axis[None])[0])

    def __len__(self) -> int:
        return len(self.codes)

    def decode(self, axis: Tensor | None) -> Tensor:
        """Return the vectors that the codes stand for. Shape: (n, D), float32."""
        vectors = self.codes.decode()
        if self.along is not None and axis is not None:
            vectors.addr_(torch.tensor(self.along), axis)
        return vectors

    def scores(self, queries: Tensor, axis: Tensor | None) -> NDArray[np.float32]:
        """Return the inner products with queries (m, D), float32. Shape: (m, n)."""
        products = self.codes.scores(queries)
        if self.along is not None and axis is not None:
            products += np.outer(queries @ axis, self.along)
        return products
