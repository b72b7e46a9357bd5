"""Pages of 1,250 vectors of 320 dimensions are compressed right."""

from __future__ import annotations

import pytest
import torch
from benchmarks import pages, synthetic

from pylate_eigenli import compress


@pytest.mark.parametrize("k", [32, 128])
def test_the_directions_are_those_of_a_full_decomposition(k: int) -> None:
    documents = synthetic.documents(2, tokens=1250, d=320, seed=k)
    subspaces = compress(documents, k)
    for i, tokens in enumerate(documents.double()):
        values, vectors = torch.linalg.eigh(tokens.mT @ tokens)
        basis = subspaces[i].double()
        assert basis.shape == (k, 320)
        torch.testing.assert_close(basis @ basis.mT, torch.eye(k).double(), atol=1e-5, rtol=0)
        energies = (tokens @ basis.mT).square().sum(0)
        torch.testing.assert_close(energies, values.flip(0)[:k], atol=0, rtol=1e-4)
        # Directions by themselves are as good as the gaps between eigenvalues let them be.
        leading = vectors[:, -k:] @ vectors[:, -k:].mT
        assert (basis.mT @ basis - leading).norm() < 0.02


def test_the_benchmark_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pages.main(["--pages", "2", "--tokens", "60", "--dim", "16", "--k", "4", "--rounds", "1"])
    assert "pages per second" in capsys.readouterr().out
