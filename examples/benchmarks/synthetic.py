"""Synthetic token vectors with the spectra of real late-interaction documents.

The tokens of a real document share a direction that holds a good quarter of their energy; the
rest decays slowly and then exponentially: over 300 SciFact abstracts (MiniLM tokens, d = 128) the
median 1st, 2nd, 8th, 32nd and 64th eigenvalues are .29, .09, .025, .006 and .0015 of the trace.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def documents(n: int, tokens: int, d: int = 128, seed: int = 0) -> Tensor:
    """Return n documents of unit token vectors. Shape: (n, tokens, d), float32.

    Examples
    --------
    >>> documents(2, tokens=60, d=16).shape
    torch.Size([2, 60, 16])
    """
    generator = torch.Generator().manual_seed(seed)
    rank = torch.arange(1, d + 1, dtype=torch.float32)
    spread = torch.sqrt(rank**-0.7 * torch.exp(-rank * 128 / d / 28))
    common = torch.nn.functional.normalize(torch.randn(d, generator=generator), dim=0)
    result = torch.empty(n, tokens, d)
    # A Gaussian matrix is nearly a rotation, and much cheaper to draw for every document.
    for begin in range(0, n, 256):
        end = min(begin + 256, n)
        axes = torch.randn(end - begin, d, d, generator=generator) / np.sqrt(d)
        centre = common + torch.randn(end - begin, 1, d, generator=generator) / np.sqrt(d)
        noise = torch.randn(end - begin, tokens, d, generator=generator) * spread
        centre = 0.65 * spread.norm() * torch.nn.functional.normalize(centre, dim=-1)
        result[begin:end] = torch.nn.functional.normalize(noise @ axes + centre, dim=-1)
    return result


def queries(n: int, tokens: int, d: int = 128, seed: int = 1) -> Tensor:
    """Return n queries of unit token vectors. Shape: (n, tokens, d), float32."""
    return documents(n, tokens, d, seed)
