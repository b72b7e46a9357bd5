"""Documents for property tests: ordinary ones and those that break eigensolvers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from helpers.definition import spectrum, unit_rows
from hypothesis import assume
from hypothesis import strategies as st
from numpy.typing import NDArray


class Document(NamedTuple):
    """Token vectors (tokens, d), float64 but exact in float32, and the rank they have."""

    tokens: NDArray[np.float64]
    rank: int


def orthogonal(rng: np.random.Generator, d: int) -> NDArray[np.float64]:
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def _random(rng, m, d):
    return unit_rows(rng, m, d), min(m, d)


def _few_distinct(rng, m, d):
    distinct = int(rng.integers(1, min(m, d) + 1))
    choice = np.concatenate([np.arange(distinct), rng.integers(0, distinct, m - distinct)])
    return unit_rows(rng, distinct, d)[choice], distinct


def _axes(rng, m, d):
    """Exactly equal eigenvalues: axes, each as often as any other, or some once more."""
    axes = rng.permutation(d)[: int(rng.integers(1, d + 1))]
    return np.eye(d)[np.resize(axes, m)], min(m, len(axes))


def _orthonormal(rng, m, d):
    """Equal eigenvalues up to rounding."""
    rows = orthogonal(rng, d)
    return rows[np.resize(np.arange(d), m)], min(m, d)


def _nearly_equal(rng, m, d):
    """Eigenvalues that differ in the sixth digit."""
    rows = orthogonal(rng, d) * (1 + 1e-6 * rng.random((d, 1)))
    return rows[np.resize(np.arange(d), m)], min(m, d)


def _narrow(rng, m, d):
    """Tokens that share most of their direction, as those of real models do."""
    x = 3 * unit_rows(rng, 1, d) + unit_rows(rng, m, d)
    return x / np.linalg.norm(x, axis=1, keepdims=True), min(m, d)


KINDS = {
    kind.__name__.strip("_"): kind
    for kind in (_random, _few_distinct, _axes, _orthonormal, _nearly_equal, _narrow)
}


@st.composite
def documents(
    draw: st.DrawFn,
    max_dim: int = 40,
    max_tokens: int = 60,
    scales: tuple[float, ...] = (1.0, 1e-6, 1e6),
) -> Document:
    d = draw(st.integers(1, max_dim))
    m = draw(st.integers(1, max_tokens))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tokens, rank = KINDS[draw(st.sampled_from(sorted(KINDS)))](rng, m, d)
    scale = draw(st.sampled_from(scales))
    tokens = (tokens * scale).astype(np.float32).astype(np.float64)
    # Square random matrices may be all but singular: nobody can say what rank those have.
    values = spectrum(tokens)[0]
    assume(values[rank - 1] > 1e-4 * values[0])
    return Document(tokens, rank)
