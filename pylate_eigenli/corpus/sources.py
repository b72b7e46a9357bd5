"""Documents from wherever people keep them: JSON lines, BEIR folders, folders of files, stdin.

A record of JSON lines is one document. A file is cut into passages of about the length that the
model reads, named ``path#1``, ``path#2`` and so on: what a model does not read cannot be found.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path
from typing import Any

from .text_store import TextDocument
from .words import WORD, count_words

BEIR_CORPUS = "corpus.jsonl"
_WORDS_PER_TOKEN = 0.65  # of plain text in English; less than the average, so as to cut early

_PARAGRAPH_END = re.compile(r"\n\s*\n")
_FULL_STOPS = "\u3002\uff01\uff1f"  # of Chinese and Japanese; no space follows them
_SENTENCE_END = re.compile(rf"(?<=[.!?])\s+|(?<=[{_FULL_STOPS}])\s*")


@dataclass(frozen=True)
class Part:
    """The documents of a record or a file.

    Parameters
    ----------
    documents
        The documents; none if a file is empty or was passed over.
    file
        Name of the file, if ``documents`` are all its passages.

    Examples
    --------
    >>> Part([TextDocument("notes.txt#1", "Apples are red.")], "notes.txt").file
    'notes.txt'
    """

    documents: list[TextDocument]
    file: str | None = None


@dataclass(frozen=True)
class Source:
    """Documents to be read one after the other.

    Parameters
    ----------
    read
        Called with the number of words of a passage; yields a part for every record or file.
    total
        Number of records or files, None if it cannot be known.
    unreadable
        What is wrong with the files that were passed over, a line each; complete once all parts
        are read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "fruit.txt").write_text("Apples are red. Limes are green.")
    >>> source = open_source(str(folder))
    >>> [[document.id for document in part.documents] for part in source.parts(document_length=5)]
    [['fruit.txt#1', 'fruit.txt#2']]
    """

    read: Callable[[int], Iterable[Part]]
    total: int | None
    unreadable: list[str] = field(default_factory=list)

    def parts(self, document_length: int) -> Iterable[Part]:
        """Return the documents of each record or file, for a model that reads so many tokens."""
        return self.read(max(1, int(document_length * _WORDS_PER_TOKEN)))

    def peeked(self, document_length: int) -> tuple[Source, list[TextDocument]]:
        """Read the first documents; return a source that gives them again, and them."""
        parts = iter(self.parts(document_length))
        read: list[Part] = []
        for part in parts:
            read.append(part)
            if part.documents:
                return replace(self, read=lambda _: chain(read, parts)), part.documents
        raise ValueError("there are no documents in the source; the index is left as it was")


def open_source(source: str) -> Source:
    """Open a source of documents.

    Parameters
    ----------
    source
        A file of JSON lines, a folder in BEIR's layout, any other file or folder of ``.txt``,
        ``.md``, ``.html`` and ``.pdf`` files, or ``-`` for JSON lines from stdin. Of a folder,
        hidden files and folders are left out, and a file that cannot be read is passed over.
    """
    if source == "-":
        return Source(lambda _: _records(sys.stdin.buffer, "stdin"), None)
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.is_dir() and (path / BEIR_CORPUS).is_file():
        path /= BEIR_CORPUS
    if path.suffix == ".jsonl":
        with path.open("rb") as file:
            total = sum(1 for line in file if line.strip())
        return Source(lambda _: _lines_of(path), total)
    if path.is_dir():
        files = sorted(_visible(path))
        if not files:
            raise ValueError(f"{path} holds no files to index ({', '.join(_READERS)})")
    elif path.suffix.lower() not in _READERS:
        known = ", ".join([".jsonl", *_READERS])
        raise ValueError(f"{path} is not of a kind that can be read ({known})")
    else:
        return Source(lambda words: [_passages_of(path, Path(path.name), words)], 1)
    unreadable: list[str] = []
    return Source(lambda words: _files(path, files, words, unreadable), len(files), unreadable)


# --- JSON lines -------------------------------------------------------------------------------


def _lines_of(path: Path) -> Iterator[Part]:
    with path.open("rb") as file:
        yield from _records(file, str(path))


def _records(lines: Iterable[bytes], name: str) -> Iterator[Part]:
    # As bytes, so that those that are not UTF-8 are found in their line, and a BOM is no matter.
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield Part([_record(json.loads(line))])
            except (ValueError, TypeError) as error:
                raise ValueError(f"{name}, line {number}: {error}") from error


def _record(row: Any) -> TextDocument:
    if not isinstance(row, dict):
        raise TypeError('expected an object with "id" (or "_id"), "text" and, if any, "title"')
    document_id = row.get("_id", row.get("id"))
    title, text = row.get("title") or "", row.get("text")
    if not isinstance(document_id, (str, int)) or isinstance(document_id, bool):
        raise TypeError('"id" (or "_id") must be a string or an integer')
    if not isinstance(text, str) or not isinstance(title, str):
        raise TypeError('"text" and "title" must be strings')
    if _valid(str(document_id)) != str(document_id):
        raise ValueError(f'"id" is not valid Unicode: {document_id!r}')
    return TextDocument(document_id, _valid(text), _valid(title))


def _valid(text: str) -> str:
    """Replace halves of surrogate pairs, which JSON can spell but no tokenizer reads."""
    return text.encode("utf-8", "replace").decode("utf-8")


# --- files ------------------------------------------------------------------------------------


def _visible(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that can be read, without those of .git and its like."""
    for file in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.suffix.lower() in _READERS and not hidden and file.is_file():
            yield file


def _files(root: Path, files: Iterable[Path], words: int, unreadable: list[str]) -> Iterator[Part]:
    for file in files:
        try:
            yield _passages_of(file, file.relative_to(root), words)
        except ValueError as error:
            # One bad file among thousands must not keep the others out.
            unreadable.append(str(error))
            yield Part([])


def _passages_of(path: Path, relative: Path, words: int) -> Part:
    name = _named(relative)
    try:
        title, text = _READERS[path.suffix.lower()](path)
    except Exception as error:  # every format has failures of its own
        raise ValueError(f"{_named(path)} cannot be read: {error}") from error
    documents = [
        TextDocument(f"{name}#{number}", passage, _valid(title) or Path(name).stem)
        for number, passage in enumerate(passages(_valid(text), words), start=1)
    ]
    return Part(documents, name)


def _named(path: Path) -> str:
    """Return the name of a file as text, also if its bytes are none."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def passages(text: str, words: int) -> list[str]:
    """Cut a text into passages of at most so many words, at the end of a paragraph or a sentence.

    Examples
    --------
    >>> passages("One two. Three four five.\\n\\nSix.", words=4)
    ['One two.', 'Three four five.\\nSix.']
    >>> passages("one two three four five", words=2)
    ['one two', 'three four', 'five']
    >>> passages("東京は首都です。大きい。", words=8)
    ['東京は首都です。', '大きい。']
    """
    result: list[str] = []
    room = 0
    for paragraph in _PARAGRAPH_END.split(text):
        joint = "\n"
        for piece in _pieces(paragraph, words):
            length = count_words(piece)
            if length <= room:
                result[-1] += joint + piece
                room -= length
            else:
                result.append(piece)
                room = words - length
            joint = "" if piece[-1] in _FULL_STOPS else " "
    return result


def _pieces(paragraph: str, words: int) -> Iterator[str]:
    """Yield a paragraph whole if it is short enough, else its sentences, cut if they must be."""
    paragraph = paragraph.strip()
    if count_words(paragraph) <= words:
        if paragraph:
            yield paragraph
        return
    for sentence in _SENTENCE_END.split(paragraph):
        found = list(WORD.finditer(sentence))
        for begin in range(0, len(found), words):
            chosen = found[begin : begin + words]
            yield " ".join(sentence[chosen[0].start() : chosen[-1].end()].split())


def _read_text(path: Path) -> tuple[str, str]:
    with path.open("rb") as file:
        is_wide = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    encoding = "utf-16" if is_wide else "utf-8-sig"
    return "", path.read_text(encoding, errors="replace")


def _read_markdown(path: Path) -> tuple[str, str]:
    text = _read_text(path)[1]
    heading = re.match(r"\s*#\s+(.+?)\s*#*\s*$", text, re.MULTILINE)
    return (heading.group(1), text[heading.end() :]) if heading else ("", text)


class _HTMLText(HTMLParser):
    """Collects the title and the visible text of a page."""

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
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        # The end of a head may be left out, and the beginning of a body as well.
        if tag == "body" or (self._open == ["head"] and tag not in self.of_head):
            self._open.clear()
        if tag in self.hidden or tag in ("title", "svg"):
            self._open.append(tag)
        elif self.blocks.fullmatch(tag):
            self.text.append("\n\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            del self._open[self._open.index(tag) :]
        elif self.blocks.fullmatch(tag):
            self.text.append("\n\n")

    def handle_data(self, data: str) -> None:
        if self._open == ["head"] and data.strip():
            self._open.clear()
        if self._open[-1:] == ["title"]:
            if "svg" not in self._open:  # where it is that of a drawing
                self.title += data
        elif self.hidden.isdisjoint(self._open):
            self.text.append(re.sub(r"\s+", " ", data))


def _read_html(path: Path) -> tuple[str, str]:
    parser = _HTMLText()
    parser.feed(_read_text(path)[1])
    parser.close()
    return " ".join(parser.title.split()), "".join(parser.text)


def _read_pdf(path: Path) -> tuple[str, str]:
    try:
        import pypdfium2
    except ImportError as error:
        raise ImportError('PDF files need `pip install "pylate-eigenli[pdf]"`') from error
    with pypdfium2.PdfDocument(path) as document:
        pages = [page.get_textpage().get_text_bounded() for page in document]
        title = document.get_metadata_value("Title")
    return str(title).strip(), "\n\n".join(pages)


_READERS = {
    ".txt": _read_text,
    ".md": _read_markdown,
    ".html": _read_html,
    ".htm": _read_html,
    ".pdf": _read_pdf,
}
