"""Analyze the spectra of a collection: the rank of its documents and a fitting k."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import check_positive, require
from ..tokens import TokenBatch, collect, split_items
from .sampling import sample_items
from .settings import Preset

_LONGEST = 8
_FEW = 0.1  # share of documents shorter than k up to which the reason does not mention them


@dataclass(frozen=True)
class Analysis:
    """Spectral statistics of a collection, returned by :func:`analyze`.

    Parameters
    ----------
    documents
        Number of sampled documents.
    dim
        Dimension d of the token vectors.
    tokens_per_document
        Mean number of tokens per document.
    spectra
        Normalised eigenvalues of each sampled document, descending. Shape: (documents, d).
    longest
        Normalised eigenvalues of the longest documents of the collection. Shape: (at most 8, d).
    effective_rank
        Mean of exp(entropy of the spectrum). An even spectrum of r directions has the value r.
    anisotropy
        Mean cosine of two tokens of the sample.
    mean
        The mean token. Shape: (d,).
    energy
        For each k, the mean share of the energy in the first k directions.
    shorter
        For each k, the share of documents with fewer than k tokens.
    k, preset
        Recommended settings.
    reason
        The reason for the recommendation.

    Examples
    --------
    >>> import torch
    >>> from pylate_eigenli import analyze
    >>> found = analyze([torch.eye(8)[:4], torch.eye(8)[4:]])
    >>> found.documents, round(found.effective_rank, 3)
    (2, 4.0)
    """

    documents: int
    dim: int
    tokens_per_document: float
    spectra: NDArray[np.float64]
    longest: NDArray[np.float64]
    effective_rank: float
    anisotropy: float
    mean: NDArray[np.float64]
    energy: dict[int, float]
    shorter: dict[int, float]
    k: int
    preset: Preset
    reason: str

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Plot the spectra of the longest and of random documents.

        Parameters
        ----------
        path
            The file to write. Its suffix sets the format, for instance ``.png`` or ``.svg``.
        """
        figure = require("matplotlib.figure", "plot", "drawing spectra").Figure(
            figsize=(8, 3.2), layout="constrained"
        )
        axes = figure.subplots(1, 2, sharey=True)
        at = np.arange(1, self.dim + 1)
        for axis, title, spectra in (
            (axes[0], "longest documents", self.longest),
            (axes[1], "random documents", self.spectra[:_LONGEST]),
        ):
            for spectrum in spectra:
                # A logarithmic axis has no zero, so each line ends at the rank.
                axis.semilogy(at, np.where(spectrum > 1e-9, spectrum, np.nan), lw=0.8, alpha=0.7)
            axis.semilogy(at, np.maximum(self.spectra.mean(0), 1e-9), "k--", lw=1.5, label="mean")
            axis.axvline(self.k, color="grey", lw=0.8, ls=":", label=f"k = {self.k}")
            axis.set(title=title, xlabel="direction", ylim=(1e-5, 1))
            axis.legend()
        axes[0].set_ylabel("share of the energy")
        figure.savefig(path, dpi=150)


def analyze(documents_embeddings: Any, sample: int = 1000, seed: int = 0) -> Analysis:
    """Compute the spectra of a sample of documents and recommend a k and a preset.

    Parameters
    ----------
    documents_embeddings
        Token embeddings, read once: an iterable (also a generator) of (tokens, d) arrays or
        tensors, or a padded 3-D batch.
    sample
        Number of documents to sample.
    seed
        Seed of the sample.

    Examples
    --------
    >>> import torch
    >>> documents = [torch.nn.functional.normalize(torch.randn(40, 16)) for _ in range(20)]
    >>> found = analyze(documents)
    >>> found.dim, found.energy[16]
    (16, 1.0)
    """
    check_positive(sample=sample)
    longest: list[Any] = []
    documents = _recording_longest(split_items(documents_embeddings), longest)
    drawn = sample_items(documents, sample, seed)
    if not drawn:
        raise ValueError("no documents were given")
    batch = collect(drawn, device="cpu")
    spectra = _spectra(batch)
    d = batch.dim
    ks = sorted({2**i for i in range(3, d.bit_length()) if 2**i < d} | {max(d // 2, 1), d})
    held = np.cumsum(spectra, axis=1).mean(0)
    energy = {k: min(float(held[k - 1]), 1.0) for k in ks}
    shorter = {k: float((batch.lengths < k).mean()) for k in ks}
    entropy = -(spectra * np.log(np.where(spectra > 0, spectra, 1))).sum(1)
    anisotropy = _anisotropy(batch.tokens)
    k, reason = _recommend(energy, shorter, anisotropy, d)
    return Analysis(
        documents=len(batch),
        dim=d,
        tokens_per_document=float(batch.lengths.mean()),
        spectra=spectra,
        longest=_spectra(collect(longest, dim=d, device="cpu")),
        effective_rank=float(np.exp(entropy).mean()),
        anisotropy=anisotropy,
        mean=batch.tokens.double().mean(0).numpy(),
        energy=energy,
        shorter=shorter,
        k=k,
        preset="auto",
        reason=reason,
    )


def _recording_longest(documents: Iterable[Any], longest: list[Any]) -> Iterator[Any]:
    """Yield all documents and keep the longest ones: the stream can be read only once."""
    for document in documents:
        longest[:] = heapq.nlargest(_LONGEST, [*longest, document], key=len)
        yield document


def _spectra(batch: TokenBatch) -> NDArray[np.float64]:
    """Return the normalised eigenvalues of documents, descending. Shape: (n, d)."""
    spectra = [torch.linalg.eigvalsh((x.mT @ x).double()) for x in batch]
    values = torch.stack(spectra).flip(-1).clamp_min(0).numpy()
    return np.asarray(values / values.sum(1, keepdims=True))


def _anisotropy(tokens: Tensor) -> float:
    """Return the mean cosine of two different tokens."""
    unit = torch.nn.functional.normalize(tokens.double())
    n = len(unit)
    if n < 2:
        return 1.0
    return float((unit.sum(0).square().sum() - n) / (n * (n - 1)))


def _recommend(
    energy: dict[int, float], shorter: dict[int, float], anisotropy: float, d: int
) -> tuple[int, str]:
    """Return the recommended k and the reason.

    Subspaces of more than a third of all dimensions no longer tell documents apart.
    """
    k = max((k for k in energy if 3 * k <= d), default=max(d // 3, 1))
    reason = (
        f"{k} of {d} directions tell documents apart; tokens have the mean cosine "
        f"{anisotropy:.2f}, and standardising removes what they share"
    )
    if shorter.get(k, 0) > _FEW:
        reason += f"; {shorter[k]:.0%} of the documents are shorter than {k} tokens"
    return k, reason
