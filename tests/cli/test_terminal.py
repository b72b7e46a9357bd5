"""Nothing that documents, names and errors hold reaches the terminal as a command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pylate_eigenli import EigenLIIndex
from pylate_eigenli.cli import app
from pylate_eigenli.cli.terminal import printable
from pylate_eigenli.corpus.document import Document
from pylate_eigenli.corpus.text_index import TextIndex

ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b2J\x1b]52;c;aGk=\x07\r\x08\u202ered"
FORGED = "\nerror: forged"


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code in (0, 1), result.exception
    return result.output


def assert_harmless(output: str) -> None:
    assert "red" in output
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", output)
    assert not [line for line in output.splitlines() if line.startswith("error: forged")]


def test_results_are_harmless(tmp_path: Path, tiny_model: Path) -> None:
    hostile = ESCAPES + FORGED
    with TextIndex(tmp_path / "index", model=str(tiny_model), k=4) as index:
        index.add_documents([Document(f"id{hostile}", f"the sky {hostile}", f"title{hostile}")])
        index.add_documents([Document(f"other{hostile}", "blue")])
    assert_harmless(run("search", tmp_path / "index", f"sky{hostile}", "--explain"))


def test_names_of_files_and_folders_are_harmless(tmp_path: Path, tiny_model: Path) -> None:
    folder = tmp_path / f"folder{ESCAPES}{FORGED}"
    folder.mkdir()
    (folder / "fine.txt").write_text("blue sky")
    (folder / f"broken{ESCAPES}{FORGED}.pdf").write_bytes(b"no")
    index = tmp_path / f"index{ESCAPES}{FORGED}"
    for output in (
        run("index", index, folder, "--model", tiny_model, "-k", 4),
        run("info", index),
        run("verify", index),
        run("search", f"{index}-absent", "red"),
        run("remove", index, f"nobody{ESCAPES}{FORGED}"),
    ):
        assert_harmless(output)


@pytest.mark.skipif(os.name == "nt", reason="other systems refuse such names")
def test_pages_that_are_skipped_are_harmless(tmp_path: Path, checkpoints: Path) -> None:
    (tmp_path / f"broken{ESCAPES}{FORGED}.pdf").write_bytes(b"no")
    output = run("pages", "index", tmp_path, "--model", checkpoints / "colqwen3", "-k", 4)
    assert_harmless(output)


def test_damage_is_harmless(tmp_path: Path) -> None:
    with TextIndex(tmp_path / "index", k=4) as index:
        index.add_documents([Document("a", "blue")], [np.eye(8)])
        index.index.add_documents([f"id{ESCAPES}{FORGED}"], [np.eye(8)])
    output = run("verify", tmp_path / "index")
    assert "1 documents of the index are not in" in output
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", output)


def test_an_index_without_a_model_says_so_when_it_is_served(tmp_path: Path) -> None:
    index = tmp_path / f"red{ESCAPES}{FORGED}"
    with EigenLIIndex(str(tmp_path), index.name, k=4, show_progress=False) as made:
        made.add_documents(["a"], [np.eye(8, dtype=np.float32)])
    command = [sys.executable, "-m", "pylate_eigenli.cli", "serve", str(index), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as server:
        lines = [server.stdout.readline(), server.stderr.readline(), server.stderr.readline()]
        announced = "".join(lines)
        server.terminate()
        assert_harmless(announced)
        assert "names no model" in announced
        assert "--model" in announced


def test_letters_of_all_scripts_stay() -> None:
    text = "Grüße, 東京, กรุงเทพ, עברית, 👩‍👩‍👧, e\u0301"
    assert printable(text) == text
