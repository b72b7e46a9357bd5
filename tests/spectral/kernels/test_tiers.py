"""Plain functions stand in for kernels that are not compiled yet, without anybody noticing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchmarks import synthetic
from numba import njit

from pylate_eigenli.spectral import subspace
from pylate_eigenli.spectral.kernels import tiers
from pylate_eigenli.spectral.kernels.tiers import Tiered
from pylate_eigenli.tokens import collect
from pylate_eigenli.vectors import soft


@njit
def doubled(x, out):
    out[0] = 2 * x[0]


@njit
def halved(x, out):
    out[0] = x[0] / 2


def plainly_doubled(x, out):
    out[0] = 2 * x[0] + 1e-9


def call(tiered):
    out = np.empty(1)
    tiered(np.ones(1), out)
    return out[0]


def test_the_kernel_is_compiled_in_the_background_once_it_is_worth_it(monkeypatch):
    tiered = Tiered(doubled, plainly_doubled)
    assert call(tiered) == 2 + 1e-9
    assert not doubled.signatures
    monkeypatch.setattr(tiers, "_WORTH_COMPILING", 0.0)
    assert call(tiered) == 2 + 1e-9
    tiered.wait()
    assert call(tiered) == 2


@pytest.mark.parametrize("tokens", [5, 40])
def test_stand_ins_give_the_same_but_for_rounding(tokens, monkeypatch):
    batch = collect(synthetic.documents(20, tokens, 16))
    taus = np.full(len(batch), 0.02)
    compiled = subspace.subspaces_of(batch, 4, "fill"), soft.soft_vectors(batch, taus)
    monkeypatch.setattr(subspace, "_solver", subspace._solve_by_lapack)
    monkeypatch.setattr(soft, "_compiled_soft", soft._soft_by_lapack)
    plain = subspace.subspaces_of(batch, 4, "fill"), soft.soft_vectors(batch, taus)
    torch.testing.assert_close(plain[0].bases, compiled[0].bases, atol=2e-5, rtol=0)
    torch.testing.assert_close(plain[0].eigenvalues, compiled[0].eigenvalues)
    torch.testing.assert_close(plain[1], compiled[1], atol=2e-5, rtol=0)


def test_compiling_all_compiles_what_has_been_called():
    tiered = Tiered(halved, lambda x, out: None)
    call(tiered)
    Tiered.compile_all()
    assert call(tiered) == 0.5
