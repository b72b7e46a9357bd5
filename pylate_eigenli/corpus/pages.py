"""Pages: PDFs, image files and folders of them, turned into images one page at a time."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import require
from ..models.vision_loaders import VISION
from .document import Document
from .page_files import IMAGE_SUFFIXES, MAX_PIXELS
from .sandbox import PageFile, SandboxError
from .sources import Part, fingerprint_of, visible_files

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Page:
    """One page.

    Parameters
    ----------
    document
        Path of the file relative to the folder that is read, with forward slashes.
    number
        From 1 on; None for a file that is a single image.
    image
        The page as an RGB image.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> folder = tempfile.mkdtemp()
    >>> Image.new("RGB", (20, 10)).save(f"{folder}/letter.png")
    >>> (page,) = PageReader(folder).read()
    >>> page.document, page.number, page.image.size
    ('letter.png', None, (20, 10))
    """

    document: str
    number: int | None
    image: Image

    @property
    def id(self) -> str:
        """``report.pdf#12``, or the path alone for a file that is a single image."""
        return str(page_document(self.document, self.number).id)


class PageReader:
    """The pages of a PDF, of an image file or of all of them in a folder.

    Files are read in the order of their paths, without hidden ones. Files and pages that cannot
    be read (corrupt, encrypted or too large) are left out; :attr:`skipped` has the reason by id. A
    process of its own reads them, with limits of time and memory.

    Parameters
    ----------
    source
        A folder, or one file.
    dpi
        Resolution of the rendered pages of a PDF.
    pages
        Numbers of the pages to read of every document, by default all: a ``range``, a set, or a
        result of :func:`parse_page_ranges`. A single image is page 1.
    max_pixels
        Image files with more pixels are left out; pages of a PDF are rendered smaller.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> sheets = [Image.new("RGB", (85, 110), color) for color in ("white", "red")]
    >>> sheets[0].save(folder / "report.pdf", save_all=True, append_images=sheets[1:])
    >>> sheets[0].save(folder / "scan.png")
    >>> reader = PageReader(folder, dpi=36)
    >>> [(page.id, page.image.size) for page in reader.read()]
    [('report.pdf#1', (43, 55)), ('report.pdf#2', (43, 55)), ('scan.png', (85, 110))]
    """

    def __init__(
        self,
        source: str | Path,
        *,
        dpi: float = 144,
        pages: Container[int] | None = None,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        source = Path(source)
        if not source.exists():
            raise FileNotFoundError(f"no such file or folder: {source}")
        if not dpi > 0:
            raise ValueError(f"dpi must be positive, got {dpi}")
        require("PIL", *VISION)
        self.folder = source if source.is_dir() else source.parent
        self.dpi = dpi
        self.pages = pages
        self.max_pixels = max_pixels
        self.skipped: dict[str, str] = {}
        suffixes = {*IMAGE_SUFFIXES, ".pdf"}
        files = visible_files(source, suffixes) if source.is_dir() else [source]
        self.documents = [
            path.relative_to(self.folder).as_posix()
            for path in files
            if path.suffix.lower() in suffixes
        ]
        if any(document.lower().endswith(".pdf") for document in self.documents):
            require("pypdfium2", *VISION)

    def parts(self) -> Iterator[Part]:
        """Yield the pages of each file. A page is rendered when its content is read."""
        self.skipped.clear()
        for document in self.documents:
            try:
                document.encode()
            except UnicodeEncodeError:
                printable = document.encode(errors="replace").decode()
                self.skipped[printable] = "the name of the file is not valid UTF-8"
                continue
            try:
                fingerprint = fingerprint_of(self.folder / document)
                file = PageFile(self.folder / document, self.dpi, self.max_pixels)
            except (OSError, ValueError) as error:
                self.skipped[document] = str(error)
                continue
            pages = [
                page_document(document, number, fingerprint)
                for number in file.numbers
                if self.pages is None or (number or 1) in self.pages
            ]
            yield Part(pages, document, fingerprint, partial(self._render, file))

    def _render(self, file: PageFile, page: Document) -> Image | None:
        try:
            return file.render(page.page)
        except SandboxError as error:  # one line for all pages of the file
            self.skipped[str(page.file)] = str(error)
        except ValueError as error:
            self.skipped[str(page.id)] = str(error)
        return None

    def read(self) -> Iterator[Page]:
        """Yield the pages one by one; only one is in memory at a time."""
        for part in self.parts():
            for page in part.documents:
                image = part.content(page)
                if image is not None:
                    yield Page(str(page.file), page.page, image)


@dataclass(frozen=True)
class PageRanges:
    """Ranges of numbers, both ends included; None for one without an end.

    Examples
    --------
    >>> 7 in PageRanges(((1, 3), (6, None)))
    True
    """

    ranges: tuple[tuple[int, int | None], ...]

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and any(
            first <= number and (last is None or number <= last) for first, last in self.ranges
        )


def parse_page_ranges(text: str) -> PageRanges:
    """Parse ranges of pages such as ``1-3,8,12-``.

    Examples
    --------
    >>> pages = parse_page_ranges("1-3, 8, 12-")
    >>> [number for number in range(1, 15) if number in pages]
    [1, 2, 3, 8, 12, 13, 14]
    """
    ranges: list[tuple[int, int | None]] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(-?)\s*(\d*)\s*", part)
        if match is None or (match[3] and not match[2]):
            raise ValueError(f"pages are given like 1-3,8,12-; got {text!r}")
        first = int(match[1])
        last = int(match[3]) if match[3] else None if match[2] else first
        if first < 1 or (last is not None and last < first):
            raise ValueError(f"{part.strip()!r} is not a range of pages")
        ranges.append((first, last))
    return PageRanges(tuple(ranges))


def page_document(file: str, number: int | None, fingerprint: str = "") -> Document:
    """Return the catalogue's document of a page.

    Examples
    --------
    >>> page_document("reports/2024.pdf", 12).id, page_document("scan#3.png", None).id
    ('reports/2024.pdf#12', 'scan#3.png')
    """
    if number is None:
        return Document(file, title=file, file=file, fingerprint=fingerprint)
    title = f"{file}, page {number}"
    return Document(f"{file}#{number}", "", title, file, number, fingerprint)
