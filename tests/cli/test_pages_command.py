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

import httpx
import pytest
from benchmarks.load import serving
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
    result = run("index", folder, "--model", checkpoints / "colqwen3", "--directions", "8")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Added 7, removed 0. ")
    assert result.stdout.rstrip().endswith("holds 7 pages of 4 files.")
    assert result.stderr.startswith("Indexing ...\nskipped: secret.pdf: encrypted")
    return folder.with_name("reports.pages")


def test_hits_are_printed_with_document_page_and_share(indexed: Path) -> None:
    as_json = run("search", indexed, QUESTION, "--json")
    assert as_json.exit_code == 0, as_json.output
    hits = json.loads(as_json.stdout)
    assert len(hits) == 7
    assert [hit["score"] for hit in hits] == sorted((h["score"] for h in hits), reverse=True)
    table = run("search", indexed, QUESTION, "--top", "7").stdout
    for hit in hits:
        assert hit["document"] in table
        assert f"{hit['share']:.0%}" in table
    assert {(hit["document"], hit["page"]) for hit in hits} >= {
        ("annual.pdf", 3),
        ("letter.png", None),
    }


def test_indexing_again_adds_what_is_new(indexed: Path, folder: Path, checkpoints: Path) -> None:
    sheet("new").save(folder / "new.png")
    model = ("--model", checkpoints / "colqwen3")
    told = json.loads(run("index", folder, *model, "--json").stdout)
    assert (told["documents"], told["added"], told["removed"]) == (8, 1, 0)
    assert told["skipped"] == {"secret.pdf": "encrypted"}
    chosen = run("index", folder, *model, "--index", folder.parent / "few", "--pages", "2-")
    assert chosen.stdout.startswith("Added 3, removed 0. ")


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


def report(*arguments: str | Path) -> Any:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


class TestEveryCommand:
    """An index of pages is an index like any other."""

    def test_info(self, indexed: Path, folder: Path, checkpoints: Path) -> None:
        about = report("info", indexed)
        assert (about["holds"], about["documents"], about["dim"]) == ("pages", 7, 320)
        assert about["model"] == str(checkpoints / "colqwen3")
        assert about["folder"] == str(folder)
        assert about["settings"]["k"] == 8

    def test_search(self, indexed: Path) -> None:
        found = report("search", indexed, QUESTION, "--top", "7", "--explain")
        pages = json.loads(run("search", indexed, QUESTION, "--json").stdout)
        assert [hit["score"] for hit in found["hits"]] == [hit["score"] for hit in pages]
        titles = {hit["id"]: hit["title"] for hit in found["hits"]}
        assert titles["annual.pdf#3"] == "annual.pdf, page 3"
        for hit in found["hits"]:
            assert len(hit["contributions"]) == len(found["tokens"])

    def test_add(self, indexed: Path, folder: Path) -> None:
        sheet("another letter").save(folder / "letter.png")
        sheet("new").save(folder / "new.png")
        assert report("add", indexed, folder / "letter.png")["added"] == 1
        told = report("add", indexed, folder)
        assert (told["added"], told["documents"]) == (8, 8)
        assert report("verify", indexed)["damage"] == []

    def test_remove_and_compact(self, indexed: Path) -> None:
        assert report("remove", indexed, "annual.pdf", "letter.png")["documents"] == 3
        sizes = report("compact", indexed)
        assert sizes["bytes_after"] < sizes["bytes_before"]
        left = {hit["id"] for hit in report("search", indexed, QUESTION)["hits"]}
        assert left == {"annex/tables.pdf#1", "annex/tables.pdf#2", "<i>[odd] & name.png"}
        assert report("verify", indexed)["damage"] == []

    def test_verify(self, indexed: Path) -> None:
        assert report("verify", indexed)["damage"] == []
        (indexed / "texts.sqlite").unlink()
        result = CliRunner().invoke(app, ["verify", str(indexed)])
        assert result.exit_code == 1
        assert "texts.sqlite is missing: it held the texts of the documents" in result.stdout

    def test_export_to_a_file(self, indexed: Path, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        report("export", indexed, tmp_path / "pages.parquet")
        from pyarrow import parquet

        assert parquet.read_metadata(tmp_path / "pages.parquet").num_rows == 7

    def test_export_to_a_database(self, indexed: Path, tmp_path: Path) -> None:
        pytest.importorskip("qdrant_client")
        target = tmp_path / "moved"
        assert report("convert", indexed, target, "--backend", "qdrant")["documents"] == 7
        assert report("info", target)["holds"] == "pages"
        wanted, found = (report("search", i, QUESTION)["hits"] for i in (indexed, target))
        assert [hit["title"] for hit in found] == [hit["title"] for hit in wanted]
        out = tmp_path / "sheet.html"
        assert run("search", target, QUESTION, "--thumbnails", out).exit_code == 0
        assert len(_Sheet(out.read_text(encoding="utf-8")).pictures) == 7

    def test_serve(self, indexed: Path) -> None:
        with serving(indexed) as url:
            answer = httpx.post(f"{url}/search", json={"queries": [QUESTION], "top": 7}).json()
            hits = answer["results"][0]["hits"]
            wanted = report("search", indexed, QUESTION, "--top", "7")["hits"]
            assert [hit["title"] for hit in hits] == [hit["title"] for hit in wanted]
            spectra = httpx.post(f"{url}/spectrum", json={"ids": ["letter.png"]}).json()["spectra"]
            assert sum(spectra[0]["eigenvalues"]) > 0
            refused = httpx.post(
                f"{url}/documents", json={"documents": [{"id": "note", "text": "a text"}]}
            )
            assert (refused.status_code, refused.json()["detail"]) == (
                400,
                "document 'note' cannot be read: the index holds pages, so send its embeddings",
            )
            assert httpx.get(f"{url}/info").json()["holds"] == "pages"

    def test_index_refuses_texts(self, indexed: Path, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("red")
        result = CliRunner().invoke(app, ["index", str(indexed), str(tmp_path / "a.txt")])
        assert result.exit_code == 1
        assert "holds pages, not texts" in result.stderr


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
