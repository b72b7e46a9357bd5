"""After a warm-up nothing has to be compiled."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from pylate_eigenli.cli import app
from pylate_eigenli.spectral.subspace import _solver
from pylate_eigenli.vectors.soft import _compiled_soft


def test_the_large_kernels_are_compiled() -> None:
    result = CliRunner().invoke(app, ["warmup", "--json"])
    assert result.exit_code == 0, result.output
    assert result.stderr == "Compiling, for about half a minute ...\n"
    assert json.loads(result.stdout)["seconds"] > 0
    assert all(tiered._kernel.signatures for tiered in (_solver, _compiled_soft))
