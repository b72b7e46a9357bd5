"""Projections to fewer dimensions, of packed vectors or of tokens.

A packed vector has d (d + 1) / 2 dimensions, 8,256 for d = 128. :class:`SVProjection` keeps the
directions in which the vectors of a collection vary most. This drops the part of the scores that is
smallest on average over the documents.

For large d the packed vector is too long: 51,360 dimensions for d = 320. :class:`TokenProjection`
projects the tokens instead, before they are compressed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from ..errors import check_positive
from ..spectral.sampling import Reservoir
from ..tokens import TokenBatch, collect, split_items

Vectors: TypeAlias = Tensor | NDArray[Any]

# A randomised decomposition. With this many spare directions and rounds, the explained variance is within
# 0.5 % of the optimum even for the flat spectra of packed vectors.
_SPARE_SHARE = 0.25
_SPARE_AT_LEAST = 256
_ROUNDS = 4
_DOCUMENTS_AT_ONCE = 256
_MAX_LENGTH = 1e15  # the squares of many such vectors add up to a float32


@dataclass(frozen=True)
class SVProjection:
    """Projects packed vectors on the principal directions of the documents.

    Documents are centred and queries are not. The inner product of the projected vectors, plus a
    constant per query that does not change the ranking, approximates the score::

        <q, v>  ~  <transform_queries(q), transform_documents(v)>  +  constants(q)

    The directions fit the sample better than other documents, whose projections would be shorter
    and rank lower. Every projected document therefore gets the length that is typical of the
    sample: the length of the centred vector times the square root of ``explained``.

    Parameters
    ----------
    mean
        Mean of the documents. Shape: (D,), float32.
    directions
        Orthonormal rows, by descending variance. Shape: (dim, D), float32.
    explained
        Share of the variance of the documents in the directions.

    Examples
    --------
    >>> import torch
    >>> vectors = torch.randn(200, 30) * 0.5 ** torch.arange(30) + 1
    >>> projection = SVProjection.fit([vectors], dim=8)
    >>> projection.transform_documents(vectors).shape, round(projection.explained, 2)
    (torch.Size([200, 8]), 1.0)
    """

    mean: Tensor
    directions: Tensor
    explained: float

    def __post_init__(self) -> None:
        if self.directions.ndim != 2 or self.mean.shape != self.directions.shape[1:]:
            raise ValueError(
                f"directions of shape {tuple(self.directions.shape)} do not fit a mean of shape "
                f"{tuple(self.mean.shape)}"
            )
        if not 0 <= self.explained <= 1:
            raise ValueError(f"explained is a share, not {self.explained}")

    @classmethod
    def fit(
        cls,
        vectors: Vectors | Iterable[Vectors],
        dim: int = 1024,
        *,
        max_samples: int = 8192,
        seed: int = 0,
    ) -> Self:
        """Compute the principal directions of documents.

        All vectors enter the mean; the directions come from a uniform sample. The sample takes
        ``4 max_samples D`` bytes (270 MB for D = 8,256), and the computation about twice as much.

        Parameters
        ----------
        vectors
            Packed vectors of documents, or an iterable of batches, which is read once. Arrays or
            tensors of shape (n, D).
        dim
            Number of directions to keep; at most D and at most the number of vectors.
        max_samples
            Maximal size of the sample. Documents outside the sample are approximated less well;
            more samples per direction make the difference smaller.
        seed
            Seed of the sample and of the computation.
        """
        check_positive(dim=dim)
        if max_samples < dim:
            raise ValueError(f"dim={dim} directions need max_samples >= {dim}, got {max_samples}")
        batches = iter([vectors] if isinstance(vectors, (Tensor, np.ndarray)) else vectors)
        first = next(batches, None)
        if first is None:
            raise ValueError("no vectors were given")
        width = _checked(first, None, "vector").shape[1]
        if dim > width:
            raise ValueError(f"dim={dim} is more than the {width} of the vectors")
        sample, mean = _sample(chain([first], batches), width, max_samples, seed)
        if dim > len(sample):
            raise ValueError(f"dim={dim} directions need as many vectors, got {len(sample)}")
        sample -= mean
        directions = principal_directions(
            sample, dim, max(_SPARE_AT_LEAST, int(_SPARE_SHARE * dim)), _ROUNDS, seed
        )
        total = float(sample.norm(dim=1).double().square().sum())
        kept = float((sample @ directions.mT).norm(dim=1).double().square().sum())
        return cls(mean, directions, min(kept / total, 1.0) if total > 0 else 1.0)

    @property
    def dim(self) -> int:
        """Dimension of the projected vectors."""
        return self.directions.shape[0]

    def transform_documents(self, vectors: Tensor) -> Tensor:
        """Centre and project documents (n, D), and set their length. Shape: (n, dim), float32."""
        centred = _checked(vectors, len(self.mean), "document") - self.mean
        projected = centred @ self.directions.mT
        length: Tensor = math.sqrt(self.explained) * centred.norm(dim=1, keepdim=True)
        return torch.nn.functional.normalize(projected) * length

    def transform_queries(self, vectors: Tensor) -> Tensor:
        """Project queries (n, D). Shape: (n, dim), float32."""
        return _checked(vectors, len(self.mean), "query") @ self.directions.mT

    def restore(self, projected: Tensor) -> Tensor:
        """Approximate centred documents from their projections (..., dim). Shape: (..., D)."""
        return projected @ self.directions.to(projected)

    def constants(self, vectors: Tensor) -> Tensor:
        """Return the constants to add to the scores of queries (n, D). Shape: (n,), float32."""
        return _checked(vectors, len(self.mean), "query") @ self.mean

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays by name."""
        return {
            "mean": self.mean.numpy(),
            "directions": self.directions.numpy(),
            "explained": np.array([self.explained]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Invert :meth:`to_arrays`. The arrays are copied."""
        return cls(
            torch.tensor(arrays["mean"], dtype=torch.float32),
            torch.tensor(arrays["directions"], dtype=torch.float32),
            float(arrays["explained"][0]),
        )


@dataclass(frozen=True)
class TokenProjection:
    """Projects the tokens of documents and queries to a smaller dimension.

    The directions are the leading eigenvectors of the second moment of all tokens. Tokens are not
    centred, so inner products are preserved as far as possible. They are not normalised again, so
    the lost part of a token does not count.

    Parameters
    ----------
    directions
        Orthonormal rows, by descending second moment. Shape: (dim, d), float32.
    energy
        Share of the squared length of the tokens in the directions.

    Examples
    --------
    >>> import torch
    >>> documents = [torch.nn.functional.normalize(torch.randn(n, 8)) for n in (5, 30, 12)]
    >>> projection = TokenProjection.fit(documents, dim=4)
    >>> [tuple(tokens.shape) for tokens in projection.transform(documents)]
    [(5, 4), (30, 4), (12, 4)]
    """

    directions: Tensor
    energy: float

    def __post_init__(self) -> None:
        if self.directions.ndim != 2:
            raise ValueError(
                f"directions must be a (dim, d) matrix, not of shape {tuple(self.directions.shape)}"
            )

    @classmethod
    def fit(cls, documents_embeddings: Any, dim: int = 128) -> Self:
        """Compute the principal directions of the tokens of a collection, or of a sample of it.

        Parameters
        ----------
        documents_embeddings
            Token embeddings of documents, read once: an iterable (also a generator) of (tokens, d)
            arrays or tensors, or a padded 3-D batch.
        dim
            Number of directions to keep, at most d.
        """
        check_positive(dim=dim)
        documents = iter(split_items(documents_embeddings))
        moment: Tensor | None = None
        seen = 0
        while batch := list(islice(documents, _DOCUMENTS_AT_ONCE)):
            names = [f"document {i}" for i in range(seen, seen + len(batch))]
            d = None if moment is None else len(moment)
            tokens = collect(batch, dim=d, device="cpu", names=names).tokens.double()
            if dim > tokens.shape[1]:
                raise ValueError(f"dim={dim} is more than the d={tokens.shape[1]} of the tokens")
            of_batch = tokens.mT @ tokens
            moment = of_batch if moment is None else moment + of_batch
            seen += len(batch)
        if moment is None:
            raise ValueError("no documents were given")
        directions = torch.linalg.eigh(moment).eigenvectors[:, -dim:].flip(1).mT
        energy = torch.trace(directions @ moment @ directions.mT) / torch.trace(moment)
        return cls(directions.float().contiguous(), min(float(energy), 1.0))

    @property
    def dim(self) -> int:
        """Dimension of the projected tokens."""
        return self.directions.shape[0]

    def transform(self, embeddings: Any) -> list[Tensor]:
        """Project tokens in any form. Shape of each item: (tokens, dim), float32."""
        return list(self.projected(collect(embeddings, dim=self.directions.shape[1])))

    def projected(self, batch: TokenBatch) -> TokenBatch:
        """Project the tokens of documents or queries."""
        if batch.dim != self.directions.shape[1]:
            raise ValueError(
                f"token_projection is for tokens of dimension {self.directions.shape[1]}, "
                f"not {batch.dim}"
            )
        directions = self.directions.to(batch.tokens)
        return TokenBatch(batch.tokens @ directions.mT, batch.offsets)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays by name."""
        return {"directions": self.directions.numpy(), "energy": np.array([self.energy])}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Invert :meth:`to_arrays`. The arrays are copied."""
        return cls(torch.tensor(arrays["directions"]), float(arrays["energy"][0]))


def _checked(vectors: Vectors, dim: int | None, noun: str, first: int = 0) -> Tensor:
    """Return a float32 tensor on the CPU; raise an error for a wrong shape or bad values."""
    vectors = torch.as_tensor(vectors)
    if vectors.ndim != 2 or (dim is not None and vectors.shape[1] != dim):
        wanted = "D" if dim is None else dim
        raise ValueError(f"expected (n, {wanted}) vectors, got shape {tuple(vectors.shape)}")
    vectors = vectors.to("cpu", torch.float32)
    # A norm per row finds bad values, and takes much less memory than a mask of all entries.
    bad = torch.nonzero(~(torch.linalg.vector_norm(vectors, dim=1) <= _MAX_LENGTH))
    if len(bad):
        row = int(bad[0])
        finite = bool(torch.isfinite(vectors[row]).all())
        problem = (
            f"is longer than {_MAX_LENGTH:.0e}" if finite else "contains NaN or infinite values"
        )
        raise ValueError(f"{noun} {first + row} {problem}")
    return vectors


def _sample(batches: Iterable[Vectors], width: int, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return a uniform sample of at most ``size`` rows of all batches, and the mean of all rows."""
    reservoir = Reservoir(size, seed)
    sample = np.empty((size, width), np.float32)  # unused pages take no memory
    total = torch.zeros(width, dtype=torch.float64)
    seen = 0
    for batch in batches:
        rows = _checked(batch, width, "vector", seen)
        total += rows.sum(0, dtype=torch.float64)
        slots = reservoir.slots(len(rows))
        chosen = slots < size
        # If several rows have the same slot, NumPy keeps the last one; torch does not promise this.
        sample[slots[chosen]] = rows.numpy()[chosen]
        seen += len(rows)
    return torch.from_numpy(sample[:seen]), (total / max(seen, 1)).float()


def principal_directions(x: Tensor, dim: int, spare: int, rounds: int, seed: int = 0) -> Tensor:
    """Return about the leading right singular vectors of x (n, D) as rows. Shape: (dim, D).

    A full decomposition of thousands of dimensions takes minutes, a randomised one seconds: the more
    spare directions and rounds it has, the nearer it comes.
    """
    from sklearn.utils.extmath import randomized_svd

    directions = randomized_svd(
        x.numpy(), dim, n_oversamples=spare, n_iter=rounds, random_state=seed
    )[2]
    return torch.from_numpy(np.ascontiguousarray(directions))
