"""Pages: PDFs, image files and folders of them, turned into images one page at a time."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import require
from ..models.vision_loaders import VISION
from .catalogue import Document
from .sources import Part, fingerprint_of, visible_files

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"))
MAX_PIXELS = 40_000_000
_POINTS_PER_INCH = 72
# Beyond this ratio of its sides vision models refuse an image, or see nothing in it.
_MAX_ASPECT = 100


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
    be read (corrupt, encrypted or too large) are left out; :attr:`skipped` has the reason by id.

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
        suffixes = IMAGE_SUFFIXES | {".pdf"}
        files = visible_files(source, suffixes) if source.is_dir() else [source]
        self.documents = [
            path.relative_to(self.folder).as_posix()
            for path in files
            if path.suffix.lower() in suffixes
        ]
        if any(_is_pdf(Path(document)) for document in self.documents):
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
                file = open_document(self.folder / document, self.dpi, self.max_pixels)
            except Exception as error:  # PDFium, Pillow and the file system fail in many ways
                self.skipped[document] = _reason(error)
                continue
            with file:
                pages = [
                    page_document(document, number, fingerprint)
                    for number in file.numbers
                    if self.pages is None or (number or 1) in self.pages
                ]
                yield Part(pages, document, fingerprint, partial(self._render, file))

    def _render(self, file: PdfFile | ImageFile, page: Document) -> Image | None:
        try:
            return file.render(page.page)
        except Exception as error:
            self.skipped[str(page.id)] = _reason(error)
            return None

    def read(self) -> Iterator[Page]:
        """Yield the pages one by one; only one is in memory at a time."""
        for part in self.parts():
            for page in part.documents:
                image = part.content(page)
                if image is not None:
                    yield Page(str(page.file), page.page, image)


def open_document(path: Path, dpi: float, max_pixels: int = MAX_PIXELS) -> PdfFile | ImageFile:
    """Open a file whose pages can be rendered by number, within a ``with``."""
    return PdfFile(path, dpi, max_pixels) if _is_pdf(path) else ImageFile(path, max_pixels)


class PdfFile:
    """An open PDF.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> path = Path(tempfile.mkdtemp()) / "report.pdf"
    >>> Image.new("RGB", (72, 144)).save(path)
    >>> with PdfFile(path, dpi=36, max_pixels=MAX_PIXELS) as file:
    ...     list(file.numbers), file.render(1).size
    ([1], (36, 72))
    """

    def __init__(self, path: Path, dpi: float, max_pixels: int) -> None:
        self._pdf: Any = require("pypdfium2", *VISION).PdfDocument(path)
        self._pdf.init_forms()  # without this, the fields of forms stay empty
        self._scale = dpi / _POINTS_PER_INCH
        self._max_pixels = max_pixels
        self.numbers = range(1, len(self._pdf) + 1)

    def render(self, number: int | None) -> Image:
        """Return a page as an RGB image."""
        if number is None or number not in self.numbers:
            raise ValueError(f"there is no page {number}")
        page = self._pdf[number - 1]
        try:
            width, height = page.get_size()
            _check_shape(width, height)
            scale = min(self._scale, math.sqrt(self._max_pixels / (width * height)))
            image: Image = page.render(scale=scale).to_pil().convert("RGB")
            return image
        finally:
            page.close()

    def __enter__(self) -> PdfFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pdf.close()


class ImageFile:
    """An open image file; every frame of a TIFF, which scanners make, is a page.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> path = Path(tempfile.mkdtemp()) / "letter.png"
    >>> Image.new("L", (20, 10)).save(path)
    >>> with ImageFile(path, max_pixels=MAX_PIXELS) as file:
    ...     file.render(None).mode
    'RGB'
    """

    def __init__(self, path: Path, max_pixels: int) -> None:
        from PIL import Image

        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            self._image = Image.open(path)
        self._max_pixels = max_pixels
        frames = getattr(self._image, "n_frames", 1) if self._image.format == "TIFF" else 1
        self.numbers = range(1, frames + 1) if frames > 1 else [None]

    def render(self, number: int | None) -> Image:
        """Return a page as an RGB image, the right way up."""
        if number not in self.numbers:
            raise ValueError(f"there is no page {number}")
        if number is not None:
            self._image.seek(number - 1)
        width, height = self._image.size
        _check_shape(width, height)
        if width * height > self._max_pixels:
            raise ValueError(f"{width} x {height} pixels are more than {self._max_pixels:,}")
        from PIL import ImageOps

        return ImageOps.exif_transpose(self._image).convert("RGB")

    def __enter__(self) -> ImageFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self._image.close()


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


def _is_pdf(path: Path) -> bool:
    return path.suffix.lower() == ".pdf"


def _check_shape(width: float, height: float) -> None:
    if min(width, height) <= 0 or max(width, height) > _MAX_ASPECT * min(width, height):
        raise ValueError(f"a page of {width:g} x {height:g} cannot be shown to a model")


def _reason(error: Exception) -> str:
    """Return the reason of an error in one line."""
    text = str(error).strip() or type(error).__name__
    if "Incorrect password" in text:
        return "encrypted"
    return text.splitlines()[0]
