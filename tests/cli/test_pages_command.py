"""``eigenli pages`` from a folder to a contact sheet."""

from __future__ import annotations

import base64
import io
import json
import re
import webbrowser
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from helpers.rendered import encrypted_pdf, sheet
from PIL import Image
from typer.testing import CliRunner

from pylate_eigenli.cli import app

QUESTION = 'is <b>"revenue"</b> up & running?'


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(
        app, ["pages", *map(str, arguments)], env={"COLUMNS": "120", "TERM": "dumb"}
    )


@pytest.fixture
def indexed(folder: Path, checkpoints: Path) -> Path:
    sheet("odd").save(folder / "<i>[odd] & name.png")
    (folder / "secret.pdf").write_bytes(encrypted_pdf())
    result = run("index", folder, "--model", checkpoints / "colqwen3", "-k", "8")
    assert result.exit_code == 0, result.output
    assert "7 pages, 7 of them new" in result.stdout
    assert "secret.pdf: encrypted" in result.stderr
    return folder.with_name("reports.pages")


def test_hits_are_printed_with_document_page_and_score(indexed: Path) -> None:
    as_json = run("search", indexed, QUESTION, "--json")
    assert as_json.exit_code == 0, as_json.output
    hits = json.loads(as_json.stdout)
    assert len(hits) == 7
    assert [hit["score"] for hit in hits] == sorted((h["score"] for h in hits), reverse=True)
    table = run("search", indexed, QUESTION, "-n", "7").stdout
    for hit in hits:
        assert hit["document"] in table
        assert f"{hit['score']:.3f}" in table
    assert {(hit["document"], hit["page"]) for hit in hits} >= {
        ("annual.pdf", 3),
        ("letter.png", None),
    }


def test_indexing_again_adds_what_is_new(indexed: Path, folder: Path, checkpoints: Path) -> None:
    sheet("new").save(folder / "new.png")
    model = ("--model", checkpoints / "colqwen3")
    told = json.loads(run("index", folder, *model, "--json").stdout)
    assert (told["pages"], told["added"], told["removed"]) == (8, 1, 0)
    assert told["skipped"] == {"secret.pdf": "encrypted"}
    chosen = run("index", folder, *model, "--index", folder.parent / "few", "--pages", "2-")
    assert "3 pages, 3 of them new" in chosen.stdout


class _Sheet(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.pictures: list[Image.Image] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "img":
            kind, _, data = str(dict(attributes)["src"]).partition(",")
            assert kind == "data:image/jpeg;base64"
            self.pictures.append(Image.open(io.BytesIO(base64.b64decode(data))))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_contact_sheet_needs_nothing_else(
    indexed: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    # A browser cannot be counted on where tests run.
    monkeypatch.setattr(webbrowser, "open", opened.append)
    (folder / "letter.png").unlink()
    out = tmp_path / "sheet.html"
    result = run("search", indexed, QUESTION, "--thumbnails", out, "--open", "--json")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)) == 7
    assert opened == [out.as_uri()]
    text = out.read_text(encoding="utf-8")
    page = _Sheet(text)
    assert len(page.pictures) == 6
    assert all(max(picture.size) <= 480 for picture in page.pictures)
    assert "cannot be shown" in page.text
    assert QUESTION in page.text
    assert "<i>[odd] & name.png" in page.text
    assert not {"b", "i", "script", "link"} & set(page.tags)
    assert not re.search(r"(src|href)=.(?!data:)", text)


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["index", "absent", "--model", "m"], "no such file or folder: absent"),
            (["index", ".", "--model", "m"], "there is no PDF or image in ."),
            (["index", ".", "--model", "m", "--pages", "x"], "pages are given like 1-3,8,12-"),
            (["search", "absent", "question"], "there is no index of pages in absent"),
        ],
    )
    def test_are_one_line(
        self, arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        result = run(*arguments)
        assert result.exit_code == 1
        assert message in result.stderr.splitlines()[-1]
        assert list(tmp_path.iterdir()) == []
