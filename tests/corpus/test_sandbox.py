"""Files that take all memory or never end are named and left out, and nobody else suffers."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.rendered import pdf_bomb, pdf_of_one_page_many_times, sheet

from pylate_eigenli.corpus import sandbox
from pylate_eigenli.corpus.pages import PageReader
from pylate_eigenli.corpus.sandbox import SANDBOX, PageFile, SandboxError
from pylate_eigenli.corpus.sources import open_source

pytest.importorskip("pypdfium2")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder of PDFs, read by a child with small limits."""
    SANDBOX.close()
    monkeypatch.setattr(sandbox, "MEMORY", 256 << 20)
    monkeypatch.setattr(sandbox, "SECONDS", 20.0)
    (tmp_path / "a.pdf").write_bytes(pdf_bomb(depth=1, times=1))
    (tmp_path / "bomb.pdf").write_bytes(pdf_bomb())
    (tmp_path / "c.pdf").write_bytes(pdf_bomb(depth=1, times=1))
    yield tmp_path
    SANDBOX.close()


def test_a_bomb_is_skipped_and_named_as_a_text(folder: Path) -> None:
    source = open_source(str(folder))
    parts = list(source.parts(lambda title, text: [text]))
    assert [[document.text for document in part.documents] for part in parts] == [
        ["bomb"],
        [],
        ["bomb"],
    ]
    (line,) = source.unreadable
    assert line.startswith(f"{folder / 'bomb.pdf'} cannot be read: it takes more than 256 MB")


def test_a_bomb_is_skipped_and_named_as_a_page(folder: Path) -> None:
    reader = PageReader(folder)
    assert [page.id for page in reader.read()] == ["a.pdf#1", "c.pdf#1"]
    assert list(reader.skipped) == ["bomb.pdf"]
    assert "256 MB of memory" in reader.skipped["bomb.pdf"]


def test_what_never_ends_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "SECONDS", 2.0)
    (folder / "slow.pdf").write_bytes(pdf_of_one_page_many_times())
    begin = time.perf_counter()
    with pytest.raises(SandboxError, match="it takes more than 2 seconds"):
        sandbox.read_texts(folder / "slow.pdf")
    assert time.perf_counter() - begin < 15
    assert sandbox.read_texts(folder / "a.pdf") == ("", [[1, "bomb"]])


def test_one_child_reads_all_files_that_behave(folder: Path) -> None:
    sandbox.read_texts(folder / "a.pdf")
    child = SANDBOX._child
    (folder / "broken.pdf").write_bytes(b"not a PDF")
    with pytest.raises(ValueError, match="Failed to load"):
        sandbox.read_texts(folder / "broken.pdf")
    with ThreadPoolExecutor(4) as pool:
        files = [folder / name for name in ("a.pdf", "c.pdf")] * 10
        assert {text for _, ((_, text),) in pool.map(sandbox.read_texts, files)} == {"bomb"}
    assert SANDBOX._child is child


def test_the_child_imports_nothing_of_the_working_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "resource", "pypdfium2", "pylate_eigenli"):
        (folder / f"{name}.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(folder)
    assert sandbox.read_texts(Path("a.pdf")) == ("", [[1, "bomb"]])
    assert not (folder / "ran").exists()


def test_no_other_page_of_a_file_that_failed_is_tried(folder: Path) -> None:
    file = PageFile(folder / "bomb.pdf", dpi=72, max_pixels=10_000)
    for _ in range(3):
        begin = time.perf_counter()
        with pytest.raises(SandboxError):
            file.render(1)
    assert time.perf_counter() - begin < 0.1


def test_a_file_that_changes_between_its_pages_is_read_again(tmp_path: Path) -> None:
    sheet("one").save(tmp_path / "a.png")
    file = PageFile(tmp_path / "a.png", dpi=72, max_pixels=10**6)
    assert file.render(None).size == (212, 275)
    sheet("other", size=(100, 90)).save(tmp_path / "a.png")
    assert file.render(None).size == (100, 90)
    (tmp_path / "a.png").unlink()
    with pytest.raises(ValueError, match="No such file"):
        file.render(None)


def test_pillow_tries_no_format_but_those_of_images(tmp_path: Path) -> None:
    """An EPS would start Ghostscript."""
    sheet("page").save(tmp_path / "page.eps")
    (tmp_path / "page.eps").rename(tmp_path / "page.png")
    reader = PageReader(tmp_path)
    assert list(reader.read()) == []
    assert "cannot identify image file" in reader.skipped["page.png"]
