"""Files become pages one by one; what cannot be read is named and left out."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.rendered import encrypted_pdf, png_bomb, sheet
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pylate_eigenli.corpus.pages import PageReader, page_document, parse_page_ranges
from pylate_eigenli.corpus.sandbox import PageFile


def ids(reader: PageReader) -> list[str]:
    return [page.id for page in reader.read()]


def test_every_page_of_a_folder_comes_in_the_order_of_paths(folder: Path) -> None:
    assert ids(PageReader(folder)) == [
        *("annex/tables.pdf#1", "annex/tables.pdf#2"),
        *("annual.pdf#1", "annual.pdf#2", "annual.pdf#3"),
        "letter.png",
    ]


def test_a_single_file_is_read_as_in_its_folder(folder: Path) -> None:
    assert ids(PageReader(folder / "letter.png")) == ["letter.png"]
    assert ids(PageReader(folder / "annual.pdf", pages=range(2, 3))) == ["annual.pdf#2"]


def test_dpi_sets_the_size_and_the_text_is_on_the_page(folder: Path) -> None:
    # Pillow's PDFs have one point per pixel.
    for dpi, size in ((72, (212, 275)), (144, (424, 550))):
        page = next(PageReader(folder / "annual.pdf", dpi=dpi).read())
        assert page.image.size == size
        assert page.image.mode == "RGB"
    ink = np.asarray(page.image) < 128
    assert 0.001 < ink.mean() < 0.2


def test_pages_are_not_rendered_before_they_are_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PageFile, "render", lambda *_: pytest.fail("rendered"))
    parts = {part.file: part.documents for part in PageReader(folder).parts()}
    assert [page.id for page in parts["annual.pdf"]] == [f"annual.pdf#{i}" for i in (1, 2, 3)]
    assert parts["letter.png"] == [
        page_document("letter.png", None, parts["letter.png"][0].fingerprint)
    ]


def test_frames_of_a_tiff_are_pages(tmp_path: Path) -> None:
    sheet("one").save(tmp_path / "fax.tif", save_all=True, append_images=[sheet("two")])
    sheet("only").save(tmp_path / "one.tiff")
    assert ids(PageReader(tmp_path)) == ["fax.tif#1", "fax.tif#2", "one.tiff"]


def test_photographs_are_turned_the_right_way_up(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # taken with the camera on its side
    sheet("sideways", size=(300, 200)).save(tmp_path / "photo.jpg", exif=exif)
    assert [page.image.size for page in PageReader(tmp_path).read()] == [(200, 300)]


class TestWhatCannotBeRead:
    def test_is_named_and_the_rest_is_read(self, folder: Path) -> None:
        (folder / "broken.pdf").write_bytes(b"%PDF-1.4 and then nothing")
        (folder / "empty.pdf").touch()
        (folder / "secret.pdf").write_bytes(encrypted_pdf())
        (folder / "broken.png").write_bytes(b"not a picture")
        (folder / "cut.jpg").write_bytes(_jpeg()[:400])
        (folder / "bomb.png").write_bytes(png_bomb(200_000, 200_000))
        (folder / "line.png").write_bytes(png_bomb(30_000, 1))
        reader = PageReader(folder)
        assert len(ids(reader)) == 6
        skipped = reader.skipped
        assert set(skipped) == {
            *("broken.pdf", "empty.pdf", "secret.pdf"),
            *("broken.png", "cut.jpg", "bomb.png", "line.png"),
        }
        assert skipped["secret.pdf"] == "encrypted"
        assert all(reason and "\n" not in reason for reason in skipped.values())

    def test_is_named_if_it_is_deleted_during_a_run(self, folder: Path) -> None:
        reader = PageReader(folder)
        parts = reader.parts()
        next(parts)
        (folder / "letter.png").unlink()
        part = next(parts)
        (folder / "annual.pdf").unlink()
        assert [part.content(page) for page in part.documents] == [None] * 3
        assert list(parts) == []
        assert set(reader.skipped) == {"letter.png", *(f"annual.pdf#{i}" for i in (1, 2, 3))}

    def test_images_are_bounded_before_they_are_decoded(self, tmp_path: Path) -> None:
        (tmp_path / "large.png").write_bytes(png_bomb(5000, 5000))
        reader = PageReader(tmp_path, max_pixels=1_000_000)
        assert ids(reader) == []
        assert list(reader.skipped) == ["large.png"]
        assert "5000 x 5000" in reader.skipped["large.png"]

    def test_large_pages_are_rendered_smaller(self, tmp_path: Path) -> None:
        sheet("poster", size=(3000, 2000)).save(tmp_path / "poster.pdf")
        (page,) = PageReader(tmp_path, dpi=600, max_pixels=60_000).read()
        width, height = page.image.size
        assert 50_000 < width * height < 62_000
        assert width / height == pytest.approx(1.5, rel=0.02)

    def test_hidden_and_other_files_are_none_of_its_business(self, tmp_path: Path) -> None:
        (tmp_path / ".git").mkdir()
        for name in (".git/logo.png", "._annual.pdf", "notes.txt"):
            (tmp_path / name).write_bytes(b"?")
        reader = PageReader(tmp_path)
        assert (ids(reader), reader.skipped) == ([], {})

    def test_a_missing_folder_or_library_is_an_error(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(FileNotFoundError, match="absent"):
            PageReader(folder / "absent")
        monkeypatch.setitem(sys.modules, "pypdfium2", None)
        with pytest.raises(ImportError, match=r'pypdfium2: pip install "pylate-eigenli\[vision\]"'):
            PageReader(folder)


class TestPageRanges:
    @given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), min_size=1, max_size=4))
    def test_hold_what_is_written(self, spans: list[tuple[int, int]]) -> None:
        text = ", ".join(f"{a}-{a + n}" if n else f"{a}" for a, n in spans)
        wanted = {number for a, n in spans for number in range(a, a + n + 1)}
        pages = parse_page_ranges(text)
        assert {number for number in range(80) if number in pages} == wanted

    @pytest.mark.parametrize("text", ["", "0", "3-2", "1--2", "a", "1 2", "1,,2", "-3"])
    def test_refuse_what_is_no_range(self, text: str) -> None:
        with pytest.raises(ValueError, match="pages"):
            parse_page_ranges(text)


@given(st.text(min_size=1), st.integers(1, 10**6))
def test_pages_know_their_file_and_number(name: str, number: int) -> None:
    for file, page in ((f"{name}.pdf", number), (f"{name}.png", None)):
        document = page_document(file, page)
        assert (document.file, document.page) == (file, page)
        assert str(document.id).startswith(file)


def _jpeg() -> bytes:
    import io

    buffer = io.BytesIO()
    sheet("cut off", size=(800, 800)).save(buffer, "JPEG")
    return buffer.getvalue()
