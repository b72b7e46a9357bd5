"""The command line starts at once and fails in one line."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from pylate_eigenli import EigenLIIndex, EigenLISVIndex, TextIndex, __version__
from pylate_eigenli.cli import app
from pylate_eigenli.cli.errors import one_line_errors


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def test_help_lists_the_commands(runner: CliRunner) -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "demo" in result.stdout


def test_version_is_the_package_s(runner: CliRunner) -> None:
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"eigenli {__version__}\n")


def test_an_unknown_command_is_a_usage_error(runner: CliRunner) -> None:
    assert runner.invoke(app, ["no-such-command"]).exit_code == 2


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    program = (
        "import sys, pylate_eigenli.cli\n"
        "print([name for name in ('torch', 'pylate', 'numba', 'scipy') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


@pytest.mark.parametrize("kind", [EigenLIIndex, EigenLISVIndex])
def test_info_reads_files_and_does_not_wait_for_torch(
    kind: type[EigenLIIndex] | type[EigenLISVIndex], tmp_path: Path
) -> None:
    with kind(str(tmp_path), "index", k=4, show_progress=False) as index:
        index.add_documents(["a", "b"], [np.eye(8, dtype=np.float32)] * 2)
        index.remove_documents(["b"])
    program = (
        "import sys; from pylate_eigenli.cli import app\n"
        f"app(['info', {str(tmp_path / 'index')!r}, '--json'], standalone_mode=False)\n"
        "print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    about, heavy = result.stdout.splitlines()
    assert heavy == "False"
    with TextIndex(tmp_path / "index") as opened:
        assert json.loads(about) == json.loads(json.dumps(opened.about()))
    assert json.loads(about)["documents"] == 1


class TestOneLineErrors:
    @pytest.mark.parametrize(
        ("error", "line"),
        [
            (ValueError("k is too large\nby far"), "error: k is too large\n"),
            (RuntimeError(), "error: RuntimeError\n"),
        ],
    )
    def test_an_exception_becomes_one_line(
        self, error: Exception, line: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(typer.Exit) as caught, one_line_errors(debug=False):
            raise error
        assert caught.value.exit_code == 1
        assert capsys.readouterr() == ("", line)

    def test_a_warning_becomes_one_harmless_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        with one_line_errors(debug=False):
            warnings.warn("it is scanned\x1b[2J\nby far", stacklevel=1)
        assert capsys.readouterr() == ("", "warning: it is scanned\ufffd[2J\ufffdby far\n")

    def test_debug_lets_it_pass(self) -> None:
        with pytest.raises(ValueError, match="k is too large"), one_line_errors(debug=True):
            raise ValueError("k is too large")

    def test_an_exit_keeps_its_code(self) -> None:
        with pytest.raises(typer.Exit) as caught, one_line_errors(debug=False):
            raise typer.Exit(3)
        assert caught.value.exit_code == 3
