"""Readers: the title and the text of a file, one function per format."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from ..errors import require
from . import sandbox

Reader = Callable[[Path], tuple[str, str]]
"""Returns the title of a file, empty if it has none, and its text."""


def read_text(path: Path) -> tuple[str, str]:
    """Read a text in UTF-8, or in UTF-16 if a byte order mark says so."""
    with path.open("rb") as file:
        is_wide = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    encoding = "utf-16" if is_wide else "utf-8-sig"
    return "", path.read_text(encoding, errors="replace")


def read_markdown(path: Path) -> tuple[str, str]:
    """Read Markdown; a heading of the first level at the beginning is the title."""
    text = read_text(path)[1].lstrip()
    line, _, rest = text.partition("\n")
    is_heading = line[:1] == "#" and line[1:2].isspace()
    title = line[1:].strip().rstrip("#").strip() if is_heading else ""
    return (title, rest) if title else ("", text)


def read_html(path: Path) -> tuple[str, str]:
    """Read the title and the visible text of a web page."""
    parser = _HTMLText()
    parser.feed(read_text(path)[1])
    parser.close()
    return " ".join(parser.title.split()), "".join(parser.text)


def read_pdf(path: Path) -> tuple[str, str]:
    """Read the title and the text of a PDF."""
    require("pypdfium2", "pdf", "reading PDF files")
    return sandbox.read_text(path)


READERS: dict[str, Reader] = {
    ".txt": read_text,
    ".md": read_markdown,
    ".html": sandbox.read_text,
    ".htm": sandbox.read_text,
    ".pdf": read_pdf,
}
"""By the suffix of a file."""


class _HTMLText(HTMLParser):
    """Collects the title and the visible text of a page, in linear time.

    A parser that builds HTML5's tree needs quadratic time for nested blocks (selectolax: 200
    seconds for 200,000 ``<div>``), because the rules for each tag look at all open elements.
    """

    hidden = frozenset({"script", "style", "template", "noscript", "head"})
    of_head = frozenset(
        {"base", "link", "meta", "noscript", "script", "style", "template", "title"}
    )
    blocks = re.compile(
        "address|article|aside|blockquote|br|d[dlt]|div|figcaption|footer|h[1-6r]|header|li|main|"
        "nav|ol|p|pre|section|t[dhr]|table|ul"
    )

    def __init__(self) -> None:
        super().__init__()
        self.title = ""
        self.text: list[str] = []
        # The open elements that matter, and the outermost position of each kind of them.
        self._open: list[str] = []
        self._outermost: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        # The end of a head may be left out, and the beginning of a body as well.
        if tag == "body" or (self._open == ["head"] and tag not in self.of_head):
            self._close(0)
        if tag in self.hidden or tag in ("title", "svg"):
            self._outermost.setdefault(tag, len(self._open))
            self._open.append(tag)
        elif self.blocks.fullmatch(tag):
            self.text.append("\n\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._outermost:
            self._close(self._outermost[tag])
        elif self.blocks.fullmatch(tag):
            self.text.append("\n\n")

    def handle_data(self, data: str) -> None:
        if self._open == ["head"] and data.strip():
            self._close(0)
        if self._open[-1:] == ["title"]:
            if "svg" not in self._outermost:  # inside svg it is the title of a drawing
                self.title += data
        elif self.hidden.isdisjoint(self._outermost):
            self.text.append(re.sub(r"\s+", " ", data))

    def _close(self, position: int) -> None:
        """Close the open elements from a position on."""
        while len(self._open) > position:
            tag = self._open.pop()
            if self._outermost[tag] == len(self._open):
                del self._outermost[tag]
