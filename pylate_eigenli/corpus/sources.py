"""Sources of documents: files, folders of files, BEIR's folders, stdin.

A record of JSON lines or of a table is one document. Any other file is cut into passages that the
model reads whole, named ``path#1``, ``path#2`` and so on.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from .document import Document, valid
from .passages import Cut
from .readers import READERS, opened, suffix_of
from .records import RECORD_BYTES, RECORDS, Fields, read_records
from .sandbox import read_texts

BEIR_CORPUS = "corpus.jsonl"
_TITLE_LETTERS = 1_000
_NAMED_KINDS = 8  # of files that are left out
_KNOWN = (*READERS, *RECORDS)
_FORMATS = (
    ", ".join(suffix for suffix in _KNOWN if not suffix.endswith(".gz"))
    + ", and .gz of all but .docx and .pdf"
)


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
    is_cut_short
        Whether a file of records could not be read to its end.

    Examples
    --------
    >>> Part([Document("notes.txt#1", "Apples are red.")], "notes.txt").file
    'notes.txt'
    """

    documents: list[Document]
    file: str | None = None
    fingerprint: str = ""
    content: Callable[[Document], Any] = text_of
    is_cut_short: bool = False


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
        Names of the files of a folder; None for another source. Records belong to no file.

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


def open_source(source: str | Path, fields: Fields | None = None) -> Source:
    """Open a source of documents.

    Parameters
    ----------
    source
        A file of text (``.txt``, ``.md``, ``.html``, ``.pdf``, ``.docx``) or of records
        (``.jsonl``, ``.csv``, ``.tsv``), all but PDF and Word also as ``.gz``; a folder of them, or
        one in BEIR's layout; or ``-`` (stdin) or a pipe of JSON lines. Hidden files and folders of
        a folder are left out, and files that cannot be read are skipped.
    fields
        The names of the fields of records.
    """
    names = fields or Fields()
    if source == "-":
        return Source(lambda _: _stdin(names), None)
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.is_dir() and (path / BEIR_CORPUS).is_file():
        path /= BEIR_CORPUS
    if not path.is_dir():
        suffix = ".jsonl" if path.is_fifo() else suffix_of(path)
        if suffix not in _KNOWN:
            raise ValueError(f"{path} is of an unknown format: known are {_FORMATS}")
        # Of other records the number is known when they have been read.
        total = _lines(path) if path.suffix == ".jsonl" and path.is_file() else None
        return Source(lambda cut: _parts(path, path.parent, suffix, cut, names), total)
    left_out: list[str] = []
    files = visible_files(path, _KNOWN, left_out)
    if not files:
        raise ValueError(f"{path} holds no files to index: known are {_FORMATS}")
    has_records = any(suffix_of(file) in RECORDS for file in files)
    return Source(
        lambda cut: _files(path, files, cut, names, left_out),
        None if has_records else len(files),
        left_out,
        frozenset(_named(file.relative_to(path)) for file in files),
    )


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for line in iter(partial(file.readline, RECORD_BYTES), b"") if line.strip())


def _stdin(fields: Fields) -> Iterator[Part]:
    return (Part([d]) for d in read_records(sys.stdin.buffer, "stdin", ".jsonl", fields))


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
            suffix = suffix_of(path)
            if suffix not in known:
                others[_named(Path(suffix)) if suffix else "no suffix"] += 1
            elif os.path.isfile(path):  # Path.is_file raises an error where it may not look
                files.append(path)
            else:
                nothing = path.is_symlink() and not path.exists()
                why = "is a link to nothing" if nothing else "is not a file"
                lines.append(f"{_named(path)} {why}")
    if others:
        kinds = ", ".join(f"{kind} ({n:,})" for kind, n in others.most_common(_NAMED_KINDS))
        more = ", ..." if len(others) > _NAMED_KINDS else ""
        files_left_out = f"{others.total():,} file{'' if others.total() == 1 else 's'}"
        lines.append(f"{files_left_out} of other types: {kinds}{more}")
    return sorted(files)


def fingerprint_of(path: Path) -> str:
    """Return the size of a file and when it was changed, as one string."""
    status = path.stat()
    return f"{status.st_size}-{status.st_mtime_ns}"


def _files(
    root: Path, files: Iterable[Path], cut: Cut, fields: Fields, left_out: list[str]
) -> Iterator[Part]:
    for file in files:
        empty = True
        try:
            for part in _parts(file, root, suffix_of(file), cut, fields):
                empty = empty and not part.documents
                yield part
        except ValueError as error:
            # One bad file among thousands must not keep the others out.
            left_out.append(str(error))
            yield Part([], is_cut_short=suffix_of(file) in RECORDS)
        else:
            if empty:
                scanned = file.suffix.lower() == ".pdf"
                remedy = "; `eigenli pages index` reads scanned pages" if scanned else ""
                left_out.append(f"{_named(file)} has no text{remedy}")


def _parts(path: Path, root: Path, suffix: str, cut: Cut, fields: Fields) -> Iterator[Part]:
    """Yield the documents of a file: a part per record, or one with all passages."""
    if suffix in RECORDS:
        try:
            with opened(path) as file:
                for document in read_records(file, _named(path), suffix, fields):
                    yield Part([document])
        except OSError as error:
            raise ValueError(f"{_named(path)} cannot be read: {error}") from error
        return
    name = _named(path.relative_to(root))
    try:
        fingerprint = fingerprint_of(path)
        title, texts = read_texts(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{_named(path)} cannot be read: {error}") from error
    title = valid(title)[:_TITLE_LETTERS] or Path(name).name[: -len(suffix)]
    passages = [(page, passage) for page, text in texts for passage in cut(title, text)]
    documents = [
        Document(f"{name}#{number}", passage, title, name, page, fingerprint)
        for number, (page, passage) in enumerate(passages, start=1)
    ]
    yield Part(documents, name, fingerprint)


def _named(path: Path) -> str:
    """Return the name of a file as text, even if its bytes are not valid UTF-8."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")
