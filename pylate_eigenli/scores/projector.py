"""A differentiable stand-in for the projector on a document's top-k subspace.

Eigenvectors have no gradient where eigenvalues coincide, and a wild one nearby; the hard cut at k
has none at all. Training therefore uses a spectral function of the moment that is smooth in the
moment's entries whatever its spectrum: the eigenvalue x gets the weight x^p / (x^p + mu^p), close
to 1 above the threshold mu and to 0 below it, where mu is such that the weights add up to k.

The gradient of U f(L) U' needs only the divided differences of f, (f(x) - f(y)) / (x - y), which
tend to f'(x) as the two eigenvalues meet: no division by a gap is left.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_BISECTIONS = 60


def _weights(x: Tensor, log_mu: Tensor, p: float) -> Tensor:
    # x^p / (x^p + mu^p) is a logistic curve in log x, which can neither over- nor underflow.
    return torch.sigmoid(p * (x.log() - log_mu))


class _SmoothProjector(torch.autograd.Function):
    """Forward: moments (n, d, d) to projectors (n, d, d). The threshold is part of the function."""

    @staticmethod
    def forward(ctx: Any, moments: Tensor, k: float, p: float, floor: float) -> Tensor:
        eigenvalues, u = torch.linalg.eigh(moments)
        # Weights vanish long before this share of the floor, so clamping changes nothing visible.
        x = eigenvalues.clamp_min(1e-3 * floor)
        low = bottom = torch.full_like(x[:, :1], floor).log()
        high = x[:, -1:].clamp_min(floor).log() + 1.0
        while bool((_weights(x, high, p).sum(1) > k).any()):
            high = high + 1.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            above = _weights(x, middle, p).sum(1, keepdim=True) > k
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        log_mu = (low + high) / 2
        f = _weights(x, log_mu, p)
        # Too few directions to add up to k: mu rests on the floor and does not move with x.
        free = low > bottom
        ctx.save_for_backward(eigenvalues, x, u, f, free)
        ctx.p = p
        projectors: Tensor = (u * f[:, None, :]) @ u.mT
        return projectors

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        eigenvalues, x, u, f, free = ctx.saved_tensors
        p = ctx.p
        slope = f * (1 - f)  # df/dlog(x) / p, and minus df/dlog(mu) / p
        derivative = torch.where(eigenvalues == x, p * slope / x, torch.zeros_like(x))
        gap = eigenvalues[:, :, None] - eigenvalues[:, None, :]
        scale = x[:, :, None] + x[:, None, :]
        close = gap.abs() <= 1e-4 * scale if x.dtype == torch.float32 else gap.abs() <= 1e-8 * scale
        mean = (derivative[:, :, None] + derivative[:, None, :]) / 2
        difference = (f[:, :, None] - f[:, None, :]) / torch.where(close, torch.ones_like(gap), gap)
        grad = u.mT @ ((grads[0] + grads[0].mT) / 2) @ u
        result = torch.where(close, mean, difference) * grad
        # Through the threshold: sum f = k ties every eigenvalue to mu.
        along = (slope * torch.diagonal(grad, dim1=-2, dim2=-1)).sum(1, keepdim=True)
        total = slope.sum(1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
        shift = torch.where(free, along / total, torch.zeros_like(along)) * derivative
        result = result - torch.diag_embed(shift)
        return u @ result @ u.mT, None, None, None


def smooth_projector(moments: Tensor, k: int, sharpness: float = 8.0) -> Tensor:
    """Return smooth projectors on the leading k-dimensional eigenspaces.

    Parameters
    ----------
    moments
        Second moments sum_i d_i d_i' of documents. Shape: (n, d, d), float32 or float64.
    k
        Sum of the weights of the directions, as far as the document has that many.
    sharpness
        The exponent p. Towards infinity the weights become 1 for the first k and 0 for the rest.

    Returns
    -------
    Shape: (n, d, d). Symmetric, eigenvalues in [0, 1], zero for a zero moment.

    Examples
    --------
    >>> import torch
    >>> moment = torch.diag(torch.tensor([4.0, 1.0, 0.0]))
    >>> smooth_projector(moment[None], k=1)[0].diagonal().round(decimals=3)
    tensor([0.9960, 0.0040, 0.0000])
    """
    trace = torch.diagonal(moments, dim1=-2, dim2=-1).sum(-1)
    normalised = moments / trace.clamp_min(torch.finfo(moments.dtype).tiny)[:, None, None]
    # Directions far below an even spread of the energy, 1 / d, do not count as directions.
    floor = 1e-3 / moments.shape[-1]
    projector: Tensor = _SmoothProjector.apply(  # type: ignore[no-untyped-call]
        normalised, float(k), sharpness, floor
    )
    return projector
