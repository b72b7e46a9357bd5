"""LEMUR: one vector per document by regression of MaxSim on features of single query tokens.

MaxSim of a query is the sum over its tokens of a function of one token, its largest inner product
with the document. LEMUR (arXiv 2601.21853) approximates this function for all documents at once as
<psi(token), w>, with features psi that the collection shares and one vector w per document. A query
is then the sum of the features of its tokens, and its score an inner product. This is written from
the paper's description, with its sizes as defaults:

*Features*
    Linear, layer norm and GELU. With a linear output per document they are trained to predict MaxSim
    of single tokens (100,000 of them) for a sample of 8,192 documents, standardised over all, by the
    mean squared error. Or they stay random, as in an extreme learning machine (ELM): GELU of a
    random projection, then layer norm.
*Documents*
    The least-squares solution w for a sample of tokens (16,384). All documents share its
    decomposition. Directions in which features hardly vary are left out. Vectors are written in the
    basis in which the features of the sample are orthonormal: no score changes, but solutions in the
    features' own coordinates cannot be rounded to few bits.

Tokens to learn from should come from queries, as queries point elsewhere than documents; the authors
also encode documents as queries. Without a sample of queries, tokens of documents stand in.

The authors train for up to 100 epochs on a GPU. Here it is 10 at most, and fewer if held-out tokens are
not predicted better any more. Where the processor multiplies bfloat16 fast, training and MaxSim of
single tokens use it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm.auto import tqdm

from ...errors import check_positive
from ...scores.maxsim import maxsim_scores, row_ranges
from ...tokens import TokenBatch

_BATCH = 512  # tokens per step of training, as the authors take
_RATE, _CLIP = 3e-3, 0.5
_HELD_OUT = 0.02  # of the learning tokens, to stop by
_PATIENCE = 2  # epochs without improvement
_TOKENS_AT_ONCE = 4096  # their features take 32 MB
_DOCUMENT_TOKENS_AT_ONCE = 32768


@dataclass(frozen=True)
class Lemur:
    """Learns from a collection how to encode its documents, and queries for them.

    Parameters
    ----------
    features
        Dimension of the vectors.
    trained
        Whether features are trained; otherwise they are random.
    epochs
        At most so many passes over the learning tokens.
    documents
        Documents whose MaxSim the features are trained to predict.
    learning_tokens
        Tokens that features are trained on.
    sample_tokens
        Tokens of the regression that makes a document's vector.
    seed
        Seed of samples, of random weights and of the order of training.
    show_progress
        Whether to show progress bars of the training.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> rng = np.random.default_rng(0)
    >>> documents = collect([np.eye(8)[rng.permutation(8)[:3]] for _ in range(20)])
    >>> encoder = Lemur(features=64, trained=False).fit(documents)
    >>> scores = encoder.encode_queries(documents) @ encoder.encode_documents(documents).T
    >>> bool((scores.argmax(1) == maxsim_scores(documents, documents).argmax(1)).all())
    True
    """

    features: int = 2048
    trained: bool = True
    epochs: int = 10
    documents: int = 8192
    learning_tokens: int = 100_000
    sample_tokens: int = 16_384
    seed: int = 0
    show_progress: bool = True

    def __post_init__(self) -> None:
        counts = ("features", "epochs", "documents", "learning_tokens", "sample_tokens")
        check_positive(**{name: getattr(self, name) for name in counts})

    def fit(self, documents: TokenBatch, queries: TokenBatch | None = None) -> LemurEncoder:
        """Learn from documents, and from tokens of queries if a sample of them is given.

        If the queries have fewer tokens than wanted, tokens of documents join them.
        """
        random = np.random.default_rng(self.seed)
        wanted = max(self.learning_tokens if self.trained else 0, self.sample_tokens)
        learning = _learning_tokens(documents, queries, wanted, random)
        chosen = documents.chosen(_sample(len(documents), self.documents, random).tolist())
        # Modules draw their weights from the generator of the process.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            if self.trained:
                features, mean, deviation = self._train(learning[: self.learning_tokens], chosen)
            else:
                features = RandomFeatures(documents.dim, self.features)
                few = learning[: min(self.sample_tokens, _BATCH)]
                mean, deviation = _moments(_single_token_maxsim(few, chosen))
        return LemurEncoder.of(features, learning[: self.sample_tokens], mean, deviation)

    def _train(self, learning: Tensor, documents: TokenBatch) -> tuple[nn.Module, float, float]:
        """Return trained features, and the mean and the deviation of their targets."""
        targets = torch.empty(len(learning), len(documents), dtype=torch.float16)
        for part in self._bar(_parts(len(learning), _TOKENS_AT_ONCE), "targets"):
            targets[part] = _single_token_maxsim(learning[part], documents).half()
        mean, deviation = _moments(targets)

        features = nn.Sequential(
            nn.Linear(learning.shape[1], self.features), nn.LayerNorm(self.features), nn.GELU()
        )
        output = nn.Linear(self.features, len(documents), bias=False)
        parameters = [*features.parameters(), *output.parameters()]
        optimiser = torch.optim.Adam(parameters, _RATE)

        def loss_of(rows: Tensor) -> Tensor:
            wanted = (targets[rows].float() - mean) / deviation
            with torch.autocast("cpu", _rough(), enabled=_rough() != torch.float32):
                found = output(features(learning[rows]))
            return nn.functional.mse_loss(found.float(), wanted)

        order = torch.randperm(len(learning))
        held, rest = order.tensor_split([max(1, int(_HELD_OUT * len(order)))])
        rest = rest if len(rest) else held
        best, kept, waited = float("inf"), copy.deepcopy(features.state_dict()), 0
        for epoch in range(self.epochs):
            shuffled = rest[torch.randperm(len(rest))]
            for part in self._bar(_parts(len(rest), _BATCH), f"epoch {epoch + 1}, loss {best:.4f}"):
                optimiser.zero_grad()
                loss_of(shuffled[part]).backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(parameters, _CLIP)
                optimiser.step()
            with torch.inference_mode():
                losses = [loss_of(held[part]).item() for part in _parts(len(held), _BATCH)]
            loss = sum(losses) / len(losses)
            waited += 1
            if loss < best:
                best, kept, waited = loss, copy.deepcopy(features.state_dict()), 0
            if waited == _PATIENCE:
                break
        features.load_state_dict(kept)
        return features.requires_grad_(False), mean, deviation

    def _bar(self, steps: Iterable[Any], title: str) -> Iterable[Any]:
        return tqdm(list(steps), desc=f"LEMUR, {title}", disable=not self.show_progress)


class RandomFeatures(nn.Module):
    """Features that are not trained: GELU of a random projection, then layer norm."""

    def __init__(self, dim: int, features: int) -> None:
        super().__init__()
        self.register_buffer("weights", torch.randn(dim, features))
        self.weights: Tensor

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the features of tokens (n, dim). Shape: (n, features)."""
        found = nn.functional.gelu(tokens @ self.weights)
        return nn.functional.layer_norm(found, found.shape[1:])


@dataclass(frozen=True)
class LemurEncoder:
    """Encodes documents and queries as vectors; see :meth:`Lemur.fit`.

    Parameters
    ----------
    features
        Makes features (n, F) of tokens (n, d).
    basis
        Makes vectors of features. Shape: (D, F), float32.
    sample
        The tokens of the regression. Shape: (m, d), float32.
    solver
        Makes vectors of what documents score for these tokens. Shape: (D, m), float32.
    mean, deviation
        Of MaxSim of single tokens. They do not change the order of documents.
    """

    features: nn.Module
    basis: Tensor
    sample: Tensor
    solver: Tensor
    mean: float
    deviation: float

    @classmethod
    def of(cls, features: nn.Module, sample: Tensor, mean: float, deviation: float) -> LemurEncoder:
        """Return the encoder, with the regression on sample tokens solved for all documents."""
        # Singular values below the rounding error of float32 are dropped, as is usual. Their squares
        # are far above the rounding error of float64.
        z = _features(features, sample).double()
        values, vectors = torch.linalg.eigh(z.mT @ z)
        least = (torch.finfo(torch.float32).eps * max(z.shape)) ** 2 * values[-1]
        kept = values > least
        basis = (vectors[:, kept] / values[kept].sqrt()).mT
        return cls(features, basis.float(), sample, (basis @ z.mT).float(), mean, deviation)

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return len(self.solver)

    def encode_documents(self, documents: TokenBatch) -> NDArray[np.float32]:
        """Return the vectors of documents. Shape: (documents, ``dim``)."""
        vectors = np.empty((len(documents), self.dim), np.float32)
        for begin, end in row_ranges(documents.offsets, _DOCUMENT_TOKENS_AT_ONCE):
            part = documents.chosen(range(begin, end))
            targets = (_single_token_maxsim(self.sample, part) - self.mean) / self.deviation
            vectors[begin:end] = (self.solver @ targets).mT.numpy()
        return vectors

    def encode_queries(self, queries: TokenBatch) -> NDArray[np.float32]:
        """Return the sums of the features of queries' tokens. Shape: (queries, ``dim``)."""
        vectors = np.empty((len(queries), self.dim), np.float32)
        for begin, end in row_ranges(queries.offsets, _TOKENS_AT_ONCE):
            bounds = queries.offsets[begin : end + 1]
            tokens = queries.tokens[int(bounds[0]) : int(bounds[-1])].float().cpu()
            features = _features(self.features, tokens).numpy()
            sums = np.add.reduceat(features, bounds[:-1] - bounds[0], axis=0)
            np.matmul(sums, self.basis.numpy().T, out=vectors[begin:end])
        return vectors


def _learning_tokens(
    documents: TokenBatch, queries: TokenBatch | None, wanted: int, random: np.random.Generator
) -> Tensor:
    """Return tokens to learn from, at most so many, in random order; (n, d), float32."""
    parts = (
        [] if queries is None else [queries.tokens[_sample(len(queries.tokens), wanted, random)]]
    )
    left = wanted - sum(map(len, parts))
    if left:
        parts.append(documents.tokens[_sample(len(documents.tokens), left, random)])
    learning = torch.cat([part.float().cpu() for part in parts])
    return learning[random.permutation(len(learning))]


def _sample(n: int, size: int, random: np.random.Generator) -> NDArray[np.int64]:
    return random.permutation(n)[:size]


@cache
def _rough() -> torch.dtype:
    """Return the precision of products: bfloat16 where the processor multiplies it fast."""
    can: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    fast = can.get("avx512_bf16") or can.get("amx_bf16")
    return torch.bfloat16 if fast else torch.float32


def _moments(targets: Tensor) -> tuple[float, float]:
    """Return the mean of all entries, and their deviation, 1 if they are equal."""
    parts = _parts(len(targets), _TOKENS_AT_ONCE)
    mean = sum(float(targets[part].sum(dtype=torch.float64)) for part in parts) / targets.numel()
    squares = sum(float((targets[part].float() - mean).square().sum()) for part in parts)
    return mean, (squares / targets.numel()) ** 0.5 or 1.0


def _features(features: nn.Module, tokens: Tensor) -> Tensor:
    """Return the features of tokens (n, d). Shape: (n, F), float32."""
    with torch.inference_mode():
        return torch.cat([features(tokens[part]) for part in _parts(len(tokens), _TOKENS_AT_ONCE)])


def _parts(n: int, size: int) -> list[slice]:
    return [slice(begin, begin + size) for begin in range(0, n, size)]


def _single_token_maxsim(tokens: Tensor, documents: TokenBatch) -> Tensor:
    """Return MaxSim of each token (n, d) as a query of its own. Shape: (n, documents)."""
    alone = TokenBatch(tokens.to(_rough()), np.arange(len(tokens) + 1))
    rounded = TokenBatch(documents.tokens.to(_rough()), documents.offsets)
    return torch.from_numpy(maxsim_scores(alone, rounded))
