"""PDFs and images as pages and texts. A child process calls this, see :mod:`.sandbox`."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import require

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_SUFFIXES = {
    ".bmp": "BMP",
    ".gif": "GIF",
    ".jpeg": "JPEG",
    ".jpg": "JPEG",
    ".png": "PNG",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".webp": "WEBP",
}
"""Pillow's names of the formats of images, by suffix."""
MAX_PIXELS = 40_000_000
_POINTS_PER_INCH = 72
# Beyond this ratio of its sides vision models refuse an image, or see nothing in it.
_MAX_ASPECT = 100


def open_pages(path: Path, dpi: float, max_pixels: int) -> PdfFile | ImageFile:
    """Open a file whose pages can be rendered by number."""
    if path.suffix.lower() == ".pdf":
        return PdfFile(path, dpi, max_pixels)
    return ImageFile(path, max_pixels)


def read_pdf(path: Path) -> tuple[str, list[tuple[int | None, str]]]:
    """Read the title of a PDF, and the text of each page with its number."""
    with _pdf(path) as document:
        pages = [page.get_textpage().get_text_bounded() for page in document]
        title = document.get_metadata_value("Title")
    return str(title).strip(), list(enumerate(pages, start=1))


class PdfFile:
    """An open PDF."""

    def __init__(self, path: Path, dpi: float, max_pixels: int) -> None:
        self._pdf: Any = _pdf(path)
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

    def close(self) -> None:
        self._pdf.close()


class ImageFile:
    """An open image file; every frame of a TIFF, which scanners make, is a page."""

    def __init__(self, path: Path, max_pixels: int) -> None:
        from PIL import Image

        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            # Never all formats: an EPS that is called .png would start Ghostscript.
            self._image = Image.open(path, formats=sorted(set(IMAGE_SUFFIXES.values())))
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

    def close(self) -> None:
        self._image.close()


def _pdf(path: Path) -> Any:
    return require("pypdfium2", "pdf", "reading PDF files").PdfDocument(path)


def _check_shape(width: float, height: float) -> None:
    if min(width, height) <= 0 or max(width, height) > _MAX_ASPECT * min(width, height):
        raise ValueError(f"a page of {width:g} x {height:g} cannot be shown to a model")
