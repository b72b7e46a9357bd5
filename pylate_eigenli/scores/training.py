"""Training: differentiable EigenLI scores, based on a smooth projector.

The projector on the top-k eigenvectors is a bad training target. Eigenvectors have no gradient
where eigenvalues coincide and a huge one nearby, and the hard cut at k has no gradient at all.
The smooth projector gives the eigenvalue x the weight x^p / (x^p + mu^p) instead: close to 1 above
the threshold mu, close to 0 below it. The threshold mu makes the weights add up to k.

The gradient of U f(L) U' needs only the divided differences (f(x) - f(y)) / (x - y). They tend to
f'(x) as two eigenvalues meet, so the gradient is finite for every spectrum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import check_choice, check_positive
from ..spectral.background import shares_by_evidence
from ..spectral.settings import PRESETS, Preset
from ..spectral.standardise import CONSTANT
from ..tokens import pad
from .scores import moments_of, paired_scores, without_autocast

_BISECTIONS = 60


def _weights(x: Tensor, log_mu: Tensor, p: float) -> Tensor:
    # x^p / (x^p + mu^p) is a logistic curve in log x. This form neither overflows nor underflows.
    return torch.sigmoid(p * (x.log() - log_mu))


class _SmoothProjector(torch.autograd.Function):
    """Map moments (n, d, d) to projectors (n, d, d), including the search for the threshold."""

    @staticmethod
    def forward(ctx: Any, moments: Tensor, k: float, p: float, floor: float) -> Tensor:
        eigenvalues, u = torch.linalg.eigh(moments)
        # Weights are negligible far above this bound, so the clamp does not change the result.
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
        # If the weights cannot add up to k, mu stays at the floor and does not depend on x.
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
        # The gradient through mu: the condition sum f = k makes mu depend on every eigenvalue.
        along = (slope * torch.diagonal(grad, dim1=-2, dim2=-1)).sum(1, keepdim=True)
        total = slope.sum(1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
        shift = torch.where(free, along / total, torch.zeros_like(along)) * derivative
        result = result - torch.diag_embed(shift)
        return u @ result @ u.mT, None, None, None


def smooth_projector(moments: Tensor, k: int, sharpness: float = 8.0) -> Tensor:
    """Return smooth projectors on the leading k-dimensional eigenspaces of moments (n, d, d).

    Their eigenvalues are in [0, 1] and add up to k, or to less for a document of lower rank. As
    the exponent ``sharpness`` grows, the first k tend to 1 and the others to 0.

    Examples
    --------
    >>> import torch
    >>> moment = torch.diag(torch.tensor([4.0, 1.0, 0.0]))
    >>> smooth_projector(moment[None], k=1)[0].diagonal().round(decimals=3)
    tensor([0.9960, 0.0040, 0.0000])
    """
    trace = torch.diagonal(moments, dim1=-2, dim2=-1).sum(-1)
    normalised = moments / trace.clamp_min(torch.finfo(moments.dtype).tiny)[:, None, None]
    # Eigenvalues far below those of an even spectrum, 1 / d, count as zero.
    floor = 1e-3 / moments.shape[-1]
    projector: Tensor = _SmoothProjector.apply(  # type: ignore[no-untyped-call]
        normalised, float(k), sharpness, floor
    )
    return projector


def ridge(moments: Tensor) -> Tensor:
    """Return M (M + I)^-1 for moments M (..., d, d).

    It is the matrix of a document under the filter ``"ridge"`` with all directions. Its gradient
    needs no eigenvectors.

    Examples
    --------
    >>> ridge(torch.diag(torch.tensor([3.0, 1.0]))).diagonal()
    tensor([0.7500, 0.5000])
    """
    identity = torch.eye(moments.shape[-1], dtype=moments.dtype, device=moments.device)
    found: Tensor = torch.linalg.solve(moments + identity, moments)
    return found


class EigenLIScores:
    """Differentiable EigenLI scores, to train a model for the index.

    Pass an object of this class as ``score_metric`` to PyLate's losses or as ``similarity_fct`` to
    the multi-vector losses of sentence-transformers; with ``distillation=True`` to
    ``pylate.losses.Distillation`` and ``MultiVectorDistillKLDivLoss``. Documents are token
    embeddings. The scores use :func:`smooth_projector`, whose gradients are stable even if
    eigenvalues coincide.

    Parameters
    ----------
    k
        Number of directions per document; use the k of the index.
    sharpness
        Exponent of the smooth weights, see :func:`smooth_projector`.
    distillation
        Score each query against its own group of documents only.
    preset
        The preset of the index, ``"paper"`` or ``"plus"``; ``"plus"`` is also what an index without
        a preset usually chooses. It standardises tokens by the statistics of the batch, weighs all
        directions by the ridge filter, whatever ``k``, and subtracts the same share of the
        background.

    Examples
    --------
    >>> import torch
    >>> scores = EigenLIScores(k=2)
    >>> queries = torch.nn.functional.normalize(torch.randn(3, 4, 8), dim=-1)
    >>> documents = torch.nn.functional.normalize(torch.randn(3, 2, 16, 8), dim=-1)
    >>> scores(queries, documents).shape
    torch.Size([3, 6])
    """

    def __init__(
        self,
        k: int = 32,
        sharpness: float = 8.0,
        distillation: bool = False,
        preset: Preset = "paper",
    ) -> None:
        check_positive(k=k)
        if sharpness <= 0:
            raise ValueError(f"sharpness must be positive, got {sharpness!r}")
        self.k = k
        self.sharpness = sharpness
        check_choice("preset", preset, tuple(PRESETS))
        self.distillation = distillation
        self.preset = preset

    def __call__(
        self,
        queries_embeddings: Any,
        documents_embeddings: Any,
        queries_mask: Any = None,
        documents_mask: Any = None,
    ) -> Tensor:
        """Score queries against groups of documents, or each query against one document.

        Parameters
        ----------
        queries_embeddings
            Shape: (queries, query tokens, d).
        documents_embeddings
            Token embeddings. Shape: (groups, documents per group, tokens, d), or for pairs, as
            ``MultiVectorMarginMSELoss`` passes them, (queries, tokens, d).
        queries_mask
            Shape: (queries, query tokens).
        documents_mask
            The shape of the documents without d.

        Returns
        -------
        Shape: (queries, groups * documents per group), in the order of the groups; with
        ``distillation`` (queries, documents per group); for pairs (queries,).
        """
        options = PRESETS[self.preset]
        if options["standardise"]:
            queries_embeddings = _standardised(queries_embeddings, queries_mask)
            documents_embeddings = _standardised(documents_embeddings, documents_mask)
        queries = _without_background(
            moments_of(queries_embeddings, queries_mask), options["background"]
        )
        moments = moments_of(documents_embeddings, documents_mask)
        if moments.ndim not in (3, 4):
            raise ValueError(
                "documents_embeddings must have the shape (groups, documents per group, tokens, d) "
                f"or (queries, tokens, d), got {tuple(pad(documents_embeddings).shape)}"
            )
        d = moments.shape[-1]
        if self.k > d:
            raise ValueError(f"k={self.k} is too large: the tokens have only d={d} dimensions")
        with without_autocast(moments):
            if options["filter"] == "ridge":
                documents = ridge(moments).reshape(-1, d, d)
            else:
                projectors = smooth_projector(moments.reshape(-1, d, d), self.k, self.sharpness)
                documents = self._with_floor(projectors)
            if moments.ndim == 3:
                return paired_scores(queries, documents)
            if self.distillation:
                return torch.einsum("aij,abij->ab", queries, documents.reshape(moments.shape))
            return queries.flatten(1) @ documents.flatten(1).mT

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, which sentence-transformers writes into the card of a model."""
        return dict(vars(self))

    def _with_floor(self, projectors: Tensor) -> Tensor:
        """Add the floor of short documents, as an index with ``short_documents="fill"`` does."""
        d = projectors.shape[-1]
        if self.k == d:
            return projectors
        found = torch.diagonal(projectors, dim1=-2, dim2=-1).sum(-1).clamp_max(self.k)
        share = ((self.k - found) / (d - found))[:, None, None]
        identity = torch.eye(d, dtype=projectors.dtype, device=projectors.device)
        return projectors + share * (identity - projectors)


def _standardised(embeddings: Any, mask: Any) -> Tensor:
    """Standardise tokens by their own mean and energy. Padding, which is zero, stays zero."""
    x = pad(embeddings)
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    present = x.detach().any(-1, keepdim=True)
    if mask is not None:
        present = present & torch.as_tensor(mask, device=x.device).bool().unsqueeze(-1)
    count = present.sum().clamp_min(1)
    centred = (x - (x * present).flatten(0, -2).sum(0) / count) * present
    # Equal tokens have no energy; any positive scale leaves them at zero.
    energy = (centred.square().sum() / count).clamp_min(torch.finfo(x.dtype).eps)
    return torch.cat([centred / energy.sqrt(), CONSTANT * present.to(x.dtype)], dim=-1)


def _without_background(queries: Tensor, share: float) -> Tensor:
    """Subtract from each query (n, d, d) the mean moment of all, by its trace and its evidence."""
    if not share:
        return queries
    traces = torch.diagonal(queries, dim1=-2, dim2=-1).sum(-1)
    expected = queries.sum(0) / traces.sum().clamp_min(torch.finfo(queries.dtype).tiny)
    lost = shares_by_evidence(queries, share) * traces
    return queries - lost[:, None, None] * expected
