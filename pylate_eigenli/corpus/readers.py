"""Readers: the title and the texts of a file, one function per format.

The child process of :mod:`.sandbox` calls them.
"""

from __future__ import annotations

import codecs
import gzip
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import IO, cast
from xml.parsers import expat
from zipfile import BadZipFile, ZipFile

from .page_files import read_pdf

Texts = list[tuple[int | None, str]]
"""The texts of the pages of a file with their numbers; one text and None without pages."""
Reader = Callable[[Path], tuple[str, Texts]]
"""Returns the title of a file, empty if it has none, and its texts."""
MAX_BYTES = 256 << 20
"""Of a file of text, unpacked."""
_CONTROL = bytes(set(range(32)) - set(b"\b\t\n\f\r\x1b") | {127})
_MAX_CONTROL = 0.02  # of the bytes of a text; of random bytes, every tenth is one


def suffix_of(path: Path) -> str:
    """Return the suffix of a file in lower case, with the one before ``.gz``.

    Examples
    --------
    >>> suffix_of(Path("notes.v1.TXT")), suffix_of(Path("corpus.v1.jsonl.gz"))
    ('.txt', '.jsonl.gz')
    """
    return "".join(path.suffixes[-2 if path.suffix.lower() == ".gz" else -1 :]).lower()


def opened(path: Path) -> IO[bytes]:
    """Open a file to read its bytes, unpacked."""
    if path.suffix.lower() == ".gz":
        return cast("IO[bytes]", gzip.open(path))
    return path.open("rb")


def decoded(content: bytes) -> str:
    """Decode a text in UTF-8 or Windows-1252, or in UTF-16 if a byte order mark says so."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    control = len(content) - len(content.translate(None, _CONTROL))
    if b"\0" in content or control > len(content) * _MAX_CONTROL:
        raise ValueError("it is not text, whatever its name says")
    text = content.decode("utf-8-sig", "replace")
    # A text with other letters beyond ASCII is UTF-8 with a broken byte.
    if "\ufffd" in text and text.replace("\ufffd", "").isascii():
        text = content.decode("cp1252", "replace")
    return text


def _read(file: IO[bytes]) -> bytes:
    content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES >> 20} MB")
    return content


def _plain(path: Path) -> str:
    with opened(path) as file:
        return decoded(_read(file))


def read_text(path: Path) -> tuple[str, Texts]:
    """Read a text without markup."""
    return "", [(None, _plain(path))]


def read_markdown(path: Path) -> tuple[str, Texts]:
    """Read Markdown; a heading of the first level at the beginning is the title."""
    text = _plain(path).lstrip()
    line, _, rest = text.partition("\n")
    is_heading = line[:1] == "#" and line[1:2].isspace()
    title = line[1:].strip().rstrip("#").strip() if is_heading else ""
    return title, [(None, rest if title else text)]


def read_html(path: Path) -> tuple[str, Texts]:
    """Read the title and the visible text of a web page."""
    parser = _HTMLText()
    parser.read(_plain(path))
    return " ".join(parser.title.split()), [(None, "".join(parser.text))]


def read_docx(path: Path) -> tuple[str, Texts]:
    """Read the title and the text of a Word document, without what was deleted in it."""
    try:
        with ZipFile(path) as archive:
            title = ""
            if "docProps/core.xml" in archive.namelist():
                title = _xml_text(archive, "docProps/core.xml", "title")
            return title.strip(), [(None, _xml_text(archive, "word/document.xml", "t"))]
    except (BadZipFile, KeyError):
        raise ValueError("it is no Word document, or encrypted") from None


def _xml_text(archive: ZipFile, part: str, element: str) -> str:
    """Return the text in all elements of a name, with the ends of paragraphs and lines."""
    texts: list[str] = []
    parents: list[str] = []
    fallbacks = 0  # what they say has been said

    def start(name: str, _: object) -> None:
        nonlocal fallbacks
        name = name.rpartition(" ")[2]
        fallbacks += name == "Fallback"
        if parents[-1:] == ["r"] and name in ("tab", "br", "cr"):
            texts.append(" " if name == "tab" else "\n")
        parents.append(name)

    def end(_: str) -> None:
        nonlocal fallbacks
        name = parents.pop()
        fallbacks -= name == "Fallback"
        if name == "p":
            texts.append("\n\n")

    def data(text: str) -> None:
        if parents[-1] == element and not fallbacks:
            texts.append(text)

    def refuse(*_: object) -> None:
        raise ValueError("it defines entities, which no Word document does")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = data
    parser.StartDoctypeDeclHandler = refuse
    with archive.open(part) as file:
        parser.Parse(_read(file), True)
    return "".join(texts)


READERS: dict[str, Reader] = {
    ".txt": read_text,
    ".md": read_markdown,
    ".html": read_html,
    ".htm": read_html,
}
"""By the suffix of a file."""
READERS |= {f"{suffix}.gz": reader for suffix, reader in READERS.items()}
READERS |= {".docx": read_docx, ".pdf": read_pdf}


class _HTMLText:
    """Collects the title and the visible text of a page, in linear time.

    A parser that builds HTML5's tree needs quadratic time for nested blocks (selectolax: 200
    seconds for 200,000 ``<div>``), because the rules for each tag look at all open elements. That of
    Python 3.11 needs it for tags without an end (80 seconds for 20,000 ``<a ``).
    """

    hidden = frozenset({"script", "style", "template", "noscript", "head"})
    of_head = frozenset(
        {"base", "link", "meta", "noscript", "script", "style", "template", "title"}
    )
    blocks = re.compile(
        "address|article|aside|blockquote|br|d[dlt]|div|figcaption|footer|h[1-6r]|header|li|main|"
        "nav|ol|p|pre|section|t[dhr]|table|ul"
    )
    markup = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)|<!--|<[!?/]")
    end_of_tag = re.compile(r"=\s*([\"'])|>")
    raw = frozenset(
        {"script", "style", "title", "textarea", "iframe", "noembed", "noframes", "xmp"}
    )

    def __init__(self) -> None:
        self.title = ""
        self.text: list[str] = []
        # The open elements that matter, and the outermost position of each kind of them.
        self._open: list[str] = []
        self._outermost: dict[str, int] = {}

    def read(self, page: str) -> None:
        """Read a page. What has no end goes on to the end of the page, as in a browser."""
        position = 0
        while found := self.markup.search(page, position):
            self.handle_data(unescape(page[position : found.start()]))
            tag = (found[2] or "").lower()
            if tag:
                position = self._after_tag(page, found.end())
            else:
                end = "-->" if found[0] == "<!--" else ">"
                position = page.find(end, found.end()) + len(end)
                position = len(page) if position < found.end() else position
            if tag and found[1]:
                self.handle_endtag(tag)
            elif tag:
                self.handle_starttag(tag)
                if tag in self.raw and "svg" not in self._outermost:
                    closing = re.compile(rf"</{tag}(?=[\s/>])", re.I).search(page, position)
                    end_of_text = closing.start() if closing else len(page)
                    self.handle_data(unescape(page[position:end_of_text]))
                    position = end_of_text
        self.handle_data(unescape(page[position:]))

    def _after_tag(self, page: str, position: int) -> int:
        """Return the position after a tag; the value of an attribute may hold a ">"."""
        while found := self.end_of_tag.search(page, position):
            if not found[1]:
                return found.end()
            closing = page.find(found[1], found.end())
            position = found.end() if closing < 0 else closing + 1
        return len(page)

    def handle_starttag(self, tag: str) -> None:
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
