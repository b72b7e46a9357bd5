"""Tokens with the spectrum of a real late-interaction model, made when tests run."""

from __future__ import annotations

import numpy as np
import torch

from pylate_eigenli.tokens import TokenBatch, offsets_of

_DIM = 32
_COMMON = 0.82  # mean cosine of two tokens of answerai-colbert-small-v1
_TOPICS = 64


def anisotropic(
    documents: int, *, seed: int, dim: int = _DIM, tokens: int | None = None
) -> TokenBatch:
    """Return documents whose tokens share one direction and differ by topics that decay.

    All calls share the common direction and the topics, so that other documents and queries belong
    to the same collection.
    """
    world = np.random.default_rng(0)
    common = world.standard_normal(dim)
    common /= np.linalg.norm(common)
    topics = world.standard_normal((_TOPICS, dim)) * np.arange(1, dim + 1) ** -0.5
    rng = np.random.default_rng([1, seed])
    lengths = rng.integers(10, 40, documents) if tokens is None else np.full(documents, tokens)
    rows = []
    for length in lengths:
        chosen = topics[rng.choice(_TOPICS, 4, replace=False)]
        own = chosen[rng.integers(0, 4, length)] + 0.3 * rng.standard_normal((length, dim))
        own -= np.outer(own @ common, common)
        own /= np.linalg.norm(own, axis=1, keepdims=True)
        rows.append(np.sqrt(_COMMON) * common + np.sqrt(1 - _COMMON) * own)
    stacked = np.concatenate(rows).astype(np.float32)
    return TokenBatch(torch.from_numpy(stacked), offsets_of(lengths))
