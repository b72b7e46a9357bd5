"""Documents from wherever people keep them: JSON lines, BEIR folders, folders of files, stdin.

A record of JSON lines is one document. A file is cut into passages of about the length that the
model reads, named ``path#1``, ``path#2`` and so on: what a model does not read cannot be found.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from .texts import TextDocument

BEIR_CORPUS = "corpus.jsonl"
_WORDS_PER_TOKEN = 0.65  # of plain text in English; less than the average, so as to cut early

_PARAGRAPH_END = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class Source:
    """Documents to be read one after the other.

    Parameters
    ----------
    read
        Called with the number of words of a passage; yields a list of documents for every record
        or file.
    total
        Number of records or files, None if it cannot be known.
    of_files
        Whether a part is a file cut into passages, rather than a record.
    unreadable
        What is wrong with the files that were passed over, a line each; complete once all parts
        are read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "fruit.txt").write_text("Apples are red. Limes are green.")
    >>> source = open_source(str(folder))
    >>> [[document.id for document in part] for part in source.parts(document_length=5)]
    [['fruit.txt#1', 'fruit.txt#2']]
    """

    read: Callable[[int], Iterable[list[TextDocument]]]
    total: int | None
    of_files: bool = False
    unreadable: list[str] = field(default_factory=list)

    def parts(self, document_length: int) -> Iterable[list[TextDocument]]:
        """Return the documents of each record or file, for a model that reads so many tokens."""
        return self.read(max(1, int(document_length * _WORDS_PER_TOKEN)))


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
        return Source(lambda _: _records(sys.stdin, "stdin"), None)
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
        return Source(lambda words: [_passages_of(path, Path(path.name), words)], 1, True)
    unreadable: list[str] = []
    return Source(
        lambda words: _files(path, files, words, unreadable), len(files), True, unreadable
    )


# --- JSON lines -------------------------------------------------------------------------------


def _lines_of(path: Path) -> Iterator[list[TextDocument]]:
    with path.open(encoding="utf-8") as file:
        yield from _records(file, str(path))


def _records(lines: Iterable[str], name: str) -> Iterator[list[TextDocument]]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield [_record(json.loads(line))]
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


def _files(
    root: Path, files: Iterable[Path], words: int, unreadable: list[str]
) -> Iterator[list[TextDocument]]:
    for file in files:
        try:
            yield _passages_of(file, file.relative_to(root), words)
        except (OSError, ValueError) as error:
            # One bad file among thousands must not keep the others out.
            unreadable.append(str(error))
            yield []


def _passages_of(path: Path, name: Path, words: int) -> list[TextDocument]:
    title, text = _READERS[path.suffix.lower()](path)
    return [
        TextDocument(f"{name.as_posix()}#{number}", passage, title or name.stem)
        for number, passage in enumerate(passages(text, words), start=1)
    ]


def passages_from(name: str, number: int, index: Container[str]) -> list[str]:
    """Return the ids of the passages of a file, from a number on, that an index holds.

    Examples
    --------
    >>> passages_from("notes.txt", 2, {"notes.txt#1", "notes.txt#2", "notes.txt#3"})
    ['notes.txt#2', 'notes.txt#3']
    """
    ids = (f"{name}#{i}" for i in count(number))
    return list(takewhile(lambda passage: passage in index, ids))


def passages(text: str, words: int) -> list[str]:
    """Cut a text into passages of at most so many words, at the end of a paragraph or a sentence.

    Examples
    --------
    >>> passages("One two. Three four five.\\n\\nSix.", words=4)
    ['One two.', 'Three four five.\\nSix.']
    >>> passages("one two three four five", words=2)
    ['one two', 'three four', 'five']
    """
    result: list[str] = []
    room = 0
    for paragraph in _PARAGRAPH_END.split(text):
        joint = "\n"
        for piece in _pieces(paragraph, words):
            length = len(piece.split())
            if length <= room:
                result[-1] += joint + piece
                room -= length
            else:
                result.append(piece)
                room = words - length
            joint = " "
    return result


def _pieces(paragraph: str, words: int) -> Iterator[str]:
    """Yield a paragraph whole if it is short enough, else its sentences, cut if they must be."""
    parts = paragraph.split()
    if len(parts) <= words:
        if parts:
            yield paragraph.strip()
        return
    for sentence in _SENTENCE_END.split(paragraph.strip()):
        parts = sentence.split()
        for begin in range(0, len(parts), words):
            yield " ".join(parts[begin : begin + words])


def _read_text(path: Path) -> tuple[str, str]:
    return "", path.read_text(encoding="utf-8", errors="replace")


def _read_markdown(path: Path) -> tuple[str, str]:
    text = _read_text(path)[1]
    heading = re.match(r"\s*#\s+(.+?)\s*#*\s*$", text, re.MULTILINE)
    return (heading.group(1), text[heading.end() :]) if heading else ("", text)


class _HTMLText(HTMLParser):
    """Collects the title and the visible text of a page."""

    hidden = frozenset({"script", "style", "template", "noscript", "head"})
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
        if tag == "body":  # the end of a head may be left out
            self._open.clear()
        if tag in self.hidden or tag == "title":
            self._open.append(tag)
        elif self.blocks.fullmatch(tag):
            self.text.append("\n\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            del self._open[self._open.index(tag) :]
        elif self.blocks.fullmatch(tag):
            self.text.append("\n\n")

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "title":
            self.title += data
        elif not self._open:
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
    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    with document:
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
