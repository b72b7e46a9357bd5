"""MUVERA: one vector per set of token vectors, whose inner products estimate MaxSim.

Random hyperplanes cut the space into 2^b partitions. A query's encoding has the sum of its tokens in
every partition, a document's the mean. Their inner product thus pairs each query token with the
document's tokens in the same partition, which are probably the nearest. An empty partition of a
document gets the token on the wrong side of the fewest hyperplanes, the earliest of several. Each
partition's vector is shortened by a random projection. All of this is repeated with other random
numbers, and the repetitions are concatenated.

Implementations differ. Hyperplanes, projections (dense, +-1 / sqrt(p)), their order and the encodings
are those of ``fastembed.postprocess.Muvera`` with the same seed, except that

- queries are divided by the number of repetitions, so that inner products estimate MaxSim itself;
- if several tokens are nearest to an empty partition, the earliest token is taken, as in the
  authors' C++ code; fastembed takes one of the partition with the lowest number. (The C++ code also
  numbers partitions by a Gray code and draws projections with one non-zero per row; neither changes
  the expectation or the variance of an inner product.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import check_positive
from ...scores.maxsim import row_ranges
from ...spectral.kernels.compiled import precise
from ...tokens import TokenBatch

_TOKENS_AT_ONCE = 4096  # their products with the random matrices take some 15 MB


@dataclass(frozen=True)
class Muvera:
    """Encodes documents and queries as vectors of the same, fixed dimension.

    Parameters
    ----------
    repetitions
        Number of independent encodings that are concatenated.
    hyperplanes
        The number b of hyperplanes that make 2^b partitions.
    projection_dim
        The dimension p of a partition's vector, at most that of the tokens; if equal, nothing is
        projected.
    centered
        Whether to subtract the mean token of each document and each query. Tokens with a large
        common component otherwise all fall into the same few partitions.
    seed
        Seed of the random matrices; the same for documents and queries.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> tokens = np.eye(16, dtype=np.float32)
    >>> documents, queries = collect([tokens[:3], tokens[3:]]), collect([tokens[:1]], names="query")
    >>> encoder = Muvera()
    >>> encoded = encoder.encode_documents(documents)
    >>> encoded.shape
    (2, 10240)
    >>> scores = encoder.encode_queries(queries) @ encoded.T
    >>> bool(scores[0, 0] > scores[0, 1])
    True
    """

    repetitions: int = 20
    hyperplanes: int = 5
    projection_dim: int = 16
    centered: bool = False
    seed: int = 42

    def __post_init__(self) -> None:
        names = ("repetitions", "hyperplanes", "projection_dim")
        check_positive(**{name: getattr(self, name) for name in names})
        if self.hyperplanes > 16:
            raise ValueError(f"{self.hyperplanes} hyperplanes make too many partitions; at most 16")

    @property
    def dim(self) -> int:
        """The dimension of the encodings."""
        return self.repetitions * (1 << self.hyperplanes) * self.projection_dim

    def encode_documents(self, documents: TokenBatch) -> NDArray[np.float32]:
        """Return the means per partition, empty ones filled. Shape: (documents, ``dim``)."""
        return self._encode(documents, as_documents=True)

    def encode_queries(self, queries: TokenBatch) -> NDArray[np.float32]:
        """Return the sums per partition over the repetitions. Shape: (queries, ``dim``)."""
        return np.divide(self._encode(queries, as_documents=False), np.float32(self.repetitions))

    def _encode(self, batch: TokenBatch, as_documents: bool) -> NDArray[np.float32]:
        hyperplanes, projections = _random_matrices(self, batch.dim)
        rows = batch.tokens.cpu().numpy()
        shape = (len(batch), self.repetitions, (1 << self.hyperplanes), self.projection_dim)
        out = np.zeros(shape, np.float32)
        for begin, end in row_ranges(batch.offsets, _TOKENS_AT_ONCE):
            bounds = batch.offsets[begin : end + 1]
            # In double precision, so that the side of a hyperplane does not depend on which other
            # tokens are in the same matrix product.
            tokens = rows[bounds[0] : bounds[-1]].astype(np.float64)
            bounds = bounds - bounds[0]
            if self.centered:
                means = np.add.reduceat(tokens, bounds[:-1], axis=0) / np.diff(bounds)[:, None]
                tokens -= np.repeat(means, np.diff(bounds), axis=0)
            by_repetition = (len(tokens), self.repetitions, -1)
            sides = (tokens @ hyperplanes).reshape(by_repetition)
            projected = (tokens.astype(np.float32) @ projections).reshape(by_repetition)
            _gather(sides, projected, bounds, as_documents, out[begin:end])
        return out.reshape(len(batch), self.dim)


@lru_cache(maxsize=8)
def _random_matrices(settings: Muvera, dim: int) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Draw the normals of the hyperplanes and the projections of all repetitions, side by side."""
    p = settings.projection_dim
    if p > dim:
        raise ValueError(f"projection_dim={p} is larger than the dimension of the tokens, {dim}")
    generator = np.random.default_rng(settings.seed)
    normals = generator.normal(size=(settings.repetitions, dim, settings.hyperplanes))
    signs = generator.choice([-1, 1], size=(settings.repetitions, dim, p))
    projections = signs / math.sqrt(p) if p < dim else np.broadcast_to(np.eye(dim), signs.shape)
    return (
        np.ascontiguousarray(normals.transpose(1, 0, 2).reshape(dim, -1)),
        np.ascontiguousarray(projections.transpose(1, 0, 2).reshape(dim, -1), np.float32),
    )


@precise
def _gather(sides: Any, projected: Any, offsets: Any, as_documents: bool, out: Any) -> None:
    """Add up the tokens of every item, repetition and partition; finish documents.

    The signs of ``sides`` (tokens, repetitions, hyperplanes) are the bits of a token's partition.
    ``projected`` has the shape (tokens, repetitions, p), ``out`` zeros of the shape (items,
    repetitions, partitions, p). Documents are divided by the numbers of tokens, and their empty
    partitions are filled.
    """
    _, repetitions, partitions, p = out.shape
    counts = np.empty(partitions, np.int64)
    earliest = np.empty(partitions, np.int64)
    bits = np.zeros(partitions, np.int64)
    for code in range(1, partitions):
        bits[code] = bits[code >> 1] + (code & 1)
    for item in range(out.shape[0]):
        for repetition in range(repetitions):
            encoded = out[item, repetition]
            for code in range(partitions):
                counts[code] = 0
            for token in range(offsets[item], offsets[item + 1]):
                code = 0
                for i in range(sides.shape[2]):
                    if sides[token, repetition, i] > 0:
                        code |= 1 << i
                if counts[code] == 0:
                    earliest[code] = token
                counts[code] += 1
                for i in range(p):
                    encoded[code, i] += projected[token, repetition, i]
            if not as_documents:
                continue
            for code in range(partitions):
                if counts[code] > 0:
                    for i in range(p):
                        encoded[code, i] /= counts[code]
                    continue
                nearest, distance = -1, partitions
                for other in range(partitions):
                    if counts[other] > 0:
                        differing = bits[code ^ other]
                        if differing < distance or (
                            differing == distance and earliest[other] < nearest
                        ):
                            nearest, distance = earliest[other], differing
                for i in range(p):
                    encoded[code, i] = projected[nearest, repetition, i]
