"""The core benchmark runs, and its LAPACK rival finds the same directions."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import core, synthetic

from pylate_eigenli import compress


def test_the_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--dim", "16", "--k", "4", "--tokens", "20", "--documents", "16"]
    core.main([*sizes, "--collection", "50", "--rounds", "1"])
    printed = capsys.readouterr().out
    assert "LAPACK" in printed
    assert "speed-up" in printed


def test_lapack_s_top_k_is_the_same_subspace() -> None:
    documents = synthetic.documents(3, tokens=40, d=16)
    found = core.top_eigenvectors((documents.mT @ documents).numpy(), k=4)
    for vectors, basis in zip(found, compress(documents, 4), strict=True):
        np.testing.assert_allclose(vectors @ vectors.T, basis.T @ basis, atol=1e-3)
