"""From tokens to subspaces: the top eigenvectors of every document's second moment.

A document has token vectors d_1..d_m and the second moment M = sum_i d_i d_i'. Its subspace is
spanned by the orthonormal eigenvectors w_1..w_k of the k largest eigenvalues. The score of a query
q_1..q_n is the part of its tokens inside the subspace: sum_i sum_j <q_i, w_j>^2.

A document of rank r < k has only r directions. An eigensolver may return more, but those are an
arbitrary basis of the null space and are dropped. A smaller subspace catches less of every query,
which would put short documents at a disadvantage. By default the k - r missing directions are
therefore replaced by their expectation over all possible choices: the document is credited with the
share (k - r) / (d - r) of the query mass outside its subspace. This share is its *floor*::

    score = (1 - floor) * sum_ij weight_j <q_i, w_j>^2  +  floor * sum_i |q_i|^2

All weights are 1 with the filter ``"hard"``; see :mod:`pylate_eigenli.spectral.filters` for others.
Indexes store and score the *rows* sqrt(weight_j) w_j, so only this module knows the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import check_choice, check_positive
from ..tokens import TokenBatch, collect, offsets_of
from .filters import Hard, Spectra, SpectralFilter, as_filter
from .kernels.eigensolver import solve
from .kernels.moments import TOKENS_PER_PART
from .kernels.threads import for_ranges
from .kernels.tiers import Tiered

ShortDocuments = Literal["fill", "truncate"]

_DOCUMENTS_PER_TASK = 16
_DOCUMENTS_PER_BATCH = 1024
# Eigenvalues below this multiple of the precision, relative to the largest, count as zero. Rounding
# errors reach a multiple of 2, or of 12 for thousands of equal tokens.
_NOISE = 64
# Some BLAS libraries add up all rows of a product in one running sum, whose rounding errors grow
# with the number of tokens and pass for directions. Sums of short products stay below _NOISE.
_TOKENS_PER_PRODUCT = 256


@dataclass(frozen=True)
class Subspaces:
    """Subspaces of a batch of documents, with their bases concatenated.

    Parameters
    ----------
    bases
        Orthonormal rows per document, by descending eigenvalue. Shape: (directions, d).
    offsets
        Document i owns the rows ``offsets[i]:offsets[i + 1]``. Shape: (documents + 1,), int64.
    eigenvalues
        Shape: (directions,).
    weights
        Weight of each direction above the floor, in [0, 1]. Shape: (directions,).
    floors
        Share of the query mass outside the subspace that counts for the document.
        Shape: (documents,).

    Examples
    --------
    >>> subspaces = compress([torch.eye(4)[:3], torch.eye(4)], k=2)
    >>> len(subspaces), subspaces[1].shape
    (2, torch.Size([2, 4]))
    """

    bases: Tensor
    offsets: NDArray[np.int64]
    eigenvalues: Tensor
    weights: Tensor
    floors: Tensor

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> Tensor:
        """Return the basis of document i. Shape: (rank, d)."""
        i = range(len(self))[i]
        return self.bases[int(self.offsets[i]) : int(self.offsets[i + 1])]

    @property
    def ranks(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    @property
    def rows(self) -> Tensor:
        """The rows sqrt(weight_j) w_j, which indexes store. Shape: (directions, d)."""
        return self.bases * self.weights.sqrt()[:, None]

    def contributions(self, query: Tensor) -> Tensor:
        """Return the score of each token of a query (tokens, d) with each document.

        Shape: (documents, tokens); a row sums to the score.
        """
        caught = (self.rows @ query.mT).square()
        owner = torch.repeat_interleave(torch.from_numpy(self.ranks)).to(caught.device)
        inside = caught.new_zeros(len(self), len(query)).index_add_(0, owner, caught)
        return torch.lerp(inside, query.square().sum(1), self.floors[:, None])


def compress(
    documents_embeddings: Any,
    k: int = 32,
    *,
    short_documents: ShortDocuments = "fill",
    filter: str | SpectralFilter = "hard",
    mask: Any = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device | None = None,
) -> Subspaces:
    """Compress the token embeddings of documents to subspaces of at most k dimensions.

    Parameters
    ----------
    documents_embeddings
        A list of (tokens, d) arrays, tensors or nested lists, or a padded 3-D batch.
    k
        Number of directions to keep per document, at most d.
    short_documents
        Credit for the missing directions of a document of rank r < k: ``"fill"`` for their
        expected share of a query, ``"truncate"`` for none.
    filter
        Weights of the directions: ``"hard"``, ``"soft"``, ``"soft(<tau>)"``, ``"ridge"``,
        ``"ridge(<tokens>)"``, ``"energy(<share>)"``, or an object of
        :mod:`pylate_eigenli.spectral.filters`.
    mask
        Tokens to keep, only for padded embeddings. Shape: (documents, tokens).
    dtype
        Precision of the computation, ``torch.float32`` or ``torch.float64``.
    device
        Device of the computation. By default the device of the embeddings.

    Examples
    --------
    >>> import torch
    >>> document = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [1.0, 0.0, 0.0]])
    >>> subspaces = compress([document], k=1)
    >>> [round(x, 3) for x in subspaces[0][0, :2].tolist()]
    [0.98, 0.198]
    >>> compress([document], k=3).ranks.tolist()
    [2]
    """
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
    batch = collect(documents_embeddings, mask=mask, dtype=dtype, device=device)
    return subspaces_of(batch, k, short_documents, as_filter(filter))


def subspaces_of(
    batch: TokenBatch,
    k: int,
    short_documents: ShortDocuments,
    filter: SpectralFilter = Hard(),  # noqa: B008  (frozen)
) -> Subspaces:
    """Compress a batch of documents, see :func:`compress`."""
    check_k(k, batch.dim)
    check_choice("short_documents", short_documents, get_args(ShortDocuments))
    # The kernels sum many tokens at a time, so rounding errors grow with the number of parts only.
    parts = batch.lengths / TOKENS_PER_PART
    tolerances = torch.finfo(batch.tokens.dtype).eps * (_NOISE + parts)
    on_cpu = batch.tokens.device.type == "cpu"
    find = _solve_on_cpu if on_cpu else solve_in_batches
    bases, eigenvalues, ranks = find(batch, k, tolerances)
    spectra = Spectra(eigenvalues, ranks, batch)
    kept = filter.kept(spectra)
    floors = filter.rest(spectra, kept) if short_documents == "fill" else np.zeros(len(batch))
    # F = sum_j f_j w_j w_j' + c (I - sum_j w_j w_j'). If c = 1, F is I for all weights.
    above = np.maximum(filter.weights(spectra) - floors[:, None], 0)
    below_one = floors[:, None] < 1
    weights = np.where(below_one, above / np.where(below_one, 1 - floors[:, None], 1), 1)
    used = torch.from_numpy(weights).to(bases)
    if (kept < k).any():
        valid = torch.arange(k) < torch.from_numpy(kept)[:, None]
        bases, eigenvalues, used = bases[valid], eigenvalues[valid], used[valid]
    return Subspaces(
        bases=bases.reshape(-1, batch.dim),
        offsets=offsets_of(kept),
        eigenvalues=eigenvalues.reshape(-1),
        weights=used.reshape(-1),
        floors=torch.from_numpy(floors).to(bases),
    )


def check_k(k: int, dim: int) -> None:
    """Raise an error if k is not a positive integer or exceeds the dimension."""
    check_positive(k=k)
    if k > dim:
        raise ValueError(f"k={k} is too large: the tokens have only d={dim} dimensions")


Solution = tuple[Tensor, Tensor, NDArray[np.int64]]


def _solve_on_cpu(batch: TokenBatch, k: int, tolerances: NDArray[np.float64]) -> Solution:
    """Solve float32 documents with the compiled solver, in parallel tasks of a few documents.

    LAPACK solves the documents on which the compiled solver fails, all documents as long as it is
    not compiled, and all float64 documents, because the compiled bisection has float32 precision.
    """
    tokens = batch.tokens.contiguous().numpy()
    n = len(batch)
    bases = np.empty((n, k, batch.dim), tokens.dtype)  # rows beyond the rank are never read
    values = np.empty((n, k))
    ranks = np.full(n, -1, np.int64)

    def task(part: slice) -> None:
        owned = batch.offsets[part.start : part.stop + 1]
        arguments = tokens, owned, k, tolerances[part], bases[part], values[part], ranks[part]
        if tokens.dtype == np.float32:
            _solver(*arguments)
        _solve_by_lapack(*arguments)

    for_ranges(task, n, _DOCUMENTS_PER_TASK)
    return torch.from_numpy(bases), torch.from_numpy(values).to(batch.tokens.dtype), ranks


def _solve_by_lapack(
    tokens: NDArray[Any],
    offsets: NDArray[np.int64],
    k: int,
    tolerances: NDArray[np.float64],
    bases: NDArray[Any],
    values: NDArray[np.float64],
    ranks: NDArray[np.int64],
) -> None:
    """Solve the documents of rank -1; parameters as for the compiled solver."""
    d = tokens.shape[1]
    for i in np.flatnonzero(ranks < 0):
        x = torch.from_numpy(tokens[offsets[i] : offsets[i + 1]]).double()
        moment = sum(part.mT @ part for part in torch.split(x, _TOKENS_PER_PRODUCT))
        eigenvalues, vectors = torch.linalg.eigh(moment)
        order = range(d - 1, max(d - 1 - min(k, len(x)), -1), -1)
        chosen = [j for j in order if eigenvalues[j] > tolerances[i] * eigenvalues[-1]]
        directions = vectors[:, chosen].T.numpy()
        largest = np.abs(directions).argmax(1)[:, None]
        # Largest components are positive, which makes results reproducible.
        signs = np.where(np.take_along_axis(directions, largest, 1) < 0, -1, 1)
        ranks[i] = len(chosen)
        bases[i, : len(chosen)] = directions * signs
        values[i, : len(chosen)] = eigenvalues[chosen].numpy()


_solver = Tiered(solve, _solve_by_lapack)


def solve_in_batches(batch: TokenBatch, k: int, tolerances: NDArray[np.float64]) -> Solution:
    """Solve with batched torch operations, for devices that need few large calls."""
    items, solutions = list(batch), []
    for begin in range(0, len(items), _DOCUMENTS_PER_BATCH):
        part = slice(begin, begin + _DOCUMENTS_PER_BATCH)
        values, vectors = torch.linalg.eigh(torch.stack([x.mT @ x for x in items[part]]))
        values, bases = values.flip(-1)[:, :k], vectors.flip(-1)[..., :k].mT
        bars = torch.as_tensor(tolerances[part]).to(values)[:, None] * values[:, :1]
        most = torch.as_tensor(batch.lengths[part], device=values.device)[:, None]
        keep = (values > bars) & (torch.arange(k, device=values.device) < most)
        largest = bases.gather(-1, bases.abs().argmax(-1, keepdim=True))
        oriented = torch.where(largest < 0, -bases, bases)
        solutions.append((oriented * keep[..., None], values * keep, keep.sum(1)))
    bases, values, ranks = (torch.cat(found) for found in zip(*solutions, strict=True))
    return bases, values, ranks.cpu().numpy()
