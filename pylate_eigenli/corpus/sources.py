"""Sources of documents: JSON lines, BEIR folders, folders of files, stdin.

A record of JSON lines is one document, whose other fields become its metadata. A file is cut into
passages that the model reads whole, named ``path#1``, ``path#2`` and so on.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from .document import Document
from .metadata import Value, checked
from .passages import Cut
from .readers import READERS

BEIR_CORPUS = "corpus.jsonl"
_LINE_BYTES = 64 << 20
_TITLE_LETTERS = 1_000
_NAMED_KINDS = 8  # of files that are left out
_OWN_FIELDS = ("_id", "id", "title", "text")


def text_of(document: Document) -> Any:
    """Return the model's input for a text."""
    return document.whole


@dataclass(frozen=True)
class Part:
    """The documents of a record or a file.

    Parameters
    ----------
    documents
        The documents; none if a file is empty or could not be read.
    file
        Name of the file, if ``documents`` are its passages or pages.
    fingerprint
        Fingerprint of the file; see :func:`fingerprint_of`.
    content
        Returns the model's input for a document, None if it cannot be read. Call it before the
        next part is read.

    Examples
    --------
    >>> Part([Document("notes.txt#1", "Apples are red.")], "notes.txt").file
    'notes.txt'
    """

    documents: list[Document]
    file: str | None = None
    fingerprint: str = ""
    content: Callable[[Document], Any] = text_of


@dataclass(frozen=True)
class Source:
    """Documents, read one after the other.

    Parameters
    ----------
    read
        Called with a function that cuts texts into passages; yields a part per record or file.
    total
        Number of records or files, None if it is not known.
    unreadable
        One line for each skipped file, with the reason; complete when all parts are read.
    files
        Names of the files of a folder; None for another source.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "fruit.txt").write_text("Apples are red. Limes are green.")
    >>> source = open_source(str(folder))
    >>> parts = source.parts(lambda title, text: text.split(". "))
    >>> [[document.id for document in part.documents] for part in parts]
    [['fruit.txt#1', 'fruit.txt#2']]
    """

    read: Callable[[Cut], Iterable[Part]]
    total: int | None
    unreadable: list[str] = field(default_factory=list)
    files: frozenset[str] | None = None

    def parts(self, cut: Cut) -> Iterable[Part]:
        """Return the documents of each record or file."""
        return self.read(cut)


def open_source(source: str) -> Source:
    """Open a source of documents.

    Parameters
    ----------
    source
        A file of JSON lines, a folder in BEIR's layout, any other file or folder of ``.txt``,
        ``.md``, ``.html`` and ``.pdf`` files, or a pipe or ``-`` (stdin) of JSON lines. Hidden files
        and folders of a folder are left out, and files that cannot be read are skipped.
    """
    if source == "-":
        return Source(lambda _: _records(sys.stdin.buffer, "stdin"), None)
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.is_dir() and (path / BEIR_CORPUS).is_file():
        path /= BEIR_CORPUS
    if path.is_fifo():  # it can be read only once
        return Source(lambda _: _lines_of(path), None)
    if path.suffix == ".jsonl":
        with path.open("rb") as file:
            total = sum(1 for line in _lines(file, str(path)) if line.strip())
        return Source(lambda _: _lines_of(path), total)
    unreadable: list[str] = []
    if path.is_dir():
        files = visible_files(path, READERS, unreadable)
        if not files:
            raise ValueError(f"{path} holds no files to index ({', '.join(READERS)})")
    elif path.suffix.lower() not in READERS:
        known = ", ".join([".jsonl", *READERS])
        raise ValueError(f"{path} is of an unknown format; known are {known}")
    else:
        return Source(lambda cut: [_passages_of(path, Path(path.name), cut)], 1)
    names = frozenset(_named(file.relative_to(path)) for file in files)
    return Source(lambda cut: _files(path, files, cut, unreadable), len(files), unreadable, names)


# --- JSON lines -------------------------------------------------------------------------------


def _lines_of(path: Path) -> Iterator[Part]:
    with path.open("rb") as file:
        yield from _records(file, str(path))


def _lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    for number in count(1):
        line = file.readline(_LINE_BYTES + 1)
        if len(line) > _LINE_BYTES:
            raise ValueError(f"{name}, line {number}: it has more than {_LINE_BYTES >> 20} MB")
        if not line:
            return
        yield line


def _records(file: BinaryIO, name: str) -> Iterator[Part]:
    # As bytes: an error then names the line of an invalid byte, and a byte order mark is allowed.
    for number, line in enumerate(_lines(file, name), start=1):
        if line.strip():
            try:
                yield Part([_record(json.loads(line))])
            except (ValueError, TypeError, RecursionError) as error:
                raise ValueError(f"{name}, line {number}: {error}") from error


def _record(row: Any) -> Document:
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
    return Document(document_id, _valid(text), _valid(title), metadata=_metadata(row, document_id))


def _metadata(row: dict[str, Any], owner: object) -> dict[str, Value]:
    """Return the other fields of a record; what is nested stays as JSON."""
    rest = {name: value for name, value in row.items() if name not in _OWN_FIELDS}
    nested = rest.pop("metadata", None)  # as BEIR's collections have it
    rest |= nested if isinstance(nested, dict) else {"metadata": nested}
    flat = {
        _valid(name): json.dumps(value) if isinstance(value, (dict, list)) else value
        for name, value in rest.items()
        if name
    }
    return checked(
        {name: _valid(value) if isinstance(value, str) else value for name, value in flat.items()},
        owner,
    )


def _valid(text: str) -> str:
    """Replace halves of surrogate pairs, which JSON can spell but no tokenizer reads."""
    return text.encode("utf-8", "replace").decode("utf-8")


# --- files ------------------------------------------------------------------------------------


def visible_files(
    folder: Path, suffixes: Iterable[str], left_out: list[str] | None = None
) -> list[Path]:
    """Return the files of a folder with one of the suffixes, sorted, without hidden ones.

    Parameters
    ----------
    folder
        The folder, read with all folders in it.
    suffixes
        Suffixes of files, in lower case.
    left_out
        Gets a line for each folder that is not read, and one for all files of other types.
    """
    known, files, others = frozenset(suffixes), [], Counter[str]()
    lines = [] if left_out is None else left_out

    def failed(error: OSError) -> None:
        lines.append(f"{_named(Path(error.filename))} cannot be read: {error.strerror}")

    for parent, folders, names in os.walk(folder, onerror=failed):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in folders:
            if (path := Path(parent, name)).is_symlink():
                lines.append(f"{_named(path)} is a link to a folder; index the folder itself")
        for path in (Path(parent, name) for name in names if not name.startswith(".")):
            suffix = path.suffix.lower()
            if suffix in known and path.is_file():
                files.append(path)
            elif suffix not in known:
                others[_named(Path(suffix)) if suffix else "no suffix"] += 1
    if others:
        kinds = ", ".join(f"{kind} ({n:,})" for kind, n in others.most_common(_NAMED_KINDS))
        more = ", ..." if len(others) > _NAMED_KINDS else ""
        lines.append(f"{others.total():,} files of other types: {kinds}{more}")
    return sorted(files)


def fingerprint_of(path: Path) -> str:
    """Return the size of a file and when it was changed, as one string."""
    status = path.stat()
    return f"{status.st_size}-{status.st_mtime_ns}"


def _files(root: Path, files: Iterable[Path], cut: Cut, unreadable: list[str]) -> Iterator[Part]:
    for file in files:
        try:
            part = _passages_of(file, file.relative_to(root), cut)
            if not part.documents:
                scanned = file.suffix.lower() == ".pdf"
                remedy = "; `eigenli pages index` reads scanned pages" if scanned else ""
                unreadable.append(f"{_named(file)} has no text{remedy}")
            yield part
        except ValueError as error:
            # One bad file among thousands must not keep the others out.
            unreadable.append(str(error))
            yield Part([])


def _passages_of(path: Path, relative: Path, cut: Cut) -> Part:
    name = _named(relative)
    try:
        fingerprint = fingerprint_of(path)
        title, text = READERS[path.suffix.lower()](path)
    except Exception as error:  # every format raises errors of its own
        raise ValueError(f"{_named(path)} cannot be read: {error}") from error
    title = _valid(title)[:_TITLE_LETTERS] or Path(name).stem
    documents = [
        Document(f"{name}#{number}", passage, title, name, fingerprint=fingerprint)
        for number, passage in enumerate(cut(title, _valid(text)), start=1)
    ]
    return Part(documents, name, fingerprint)


def _named(path: Path) -> str:
    """Return the name of a file as text, even if its bytes are not valid UTF-8."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")
