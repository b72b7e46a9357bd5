"""Records: JSON lines and tables, whose every record is one document."""

from __future__ import annotations

import csv
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any

from .document import Document, content_id, valid
from .metadata import Value, checked
from .readers import decoded

RECORD_BYTES = 16 << 20
"""Of a record, of which Python makes up to thirty times as many; no model reads a tenth of it."""
_DELIMITERS = ",;\t"
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d+)?")  # 007 is none
_NAMED = 10  # fields that an error names


@dataclass(frozen=True)
class Fields:
    """The names of the fields that make a document; all others become its metadata.

    Parameters
    ----------
    id
        By default ``id`` or ``_id``; the id of a record without it is made from its contents.
    text, title
        Every record needs a text.

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO(b"url,body,year\\na.html,Apples are red.,2024\\n")
    >>> (document,) = read_records(file, "fruit.csv", ".csv", Fields(id="url", text="body"))
    >>> document.id, document.text, document.metadata
    ('a.html', 'Apples are red.', {'year': 2024})
    """

    id: str | None = None
    text: str = "text"
    title: str = "title"

    @property
    def ids(self) -> tuple[str, ...]:
        """The names that the id may have."""
        return ("_id", "id") if self.id is None else (self.id,)

    @property
    def own(self) -> tuple[str, ...]:
        """The names of fields that are not metadata."""
        return (*self.ids, self.text, self.title)


def read_records(file: IO[bytes], name: str, suffix: str, fields: Fields) -> Iterator[Document]:
    """Yield the documents of a file; an error names the line.

    Parameters
    ----------
    file, name
        An open file, and its name for errors.
    suffix
        One of :data:`RECORDS`.
    fields
        The names of the fields.
    """
    lines = _Lines(file)
    try:
        for row in RECORDS[suffix](lines, fields):
            lines.taken = 0
            yield _document(row, fields)
    except (ValueError, TypeError, RecursionError, csv.Error, OSError, EOFError, zlib.error) as e:
        raise ValueError(f"{name}, line {lines.number}: {e}") from e


class _Lines:
    """The lines of a file, counted; those of one record must not be too long.

    They are bytes: an error then names the line of an invalid byte.

    Attributes
    ----------
    number
        Number of the last line, from 1 on.
    taken
        Bytes that were read since the last record.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.number = self.taken = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> bytes:
        line = self._file.readline(RECORD_BYTES + 1)
        self.number += 1
        self.taken += len(line)
        if self.taken > RECORD_BYTES:
            raise ValueError(f"the record has more than {RECORD_BYTES >> 20} MB")
        if not line:
            raise StopIteration
        return line


def _json_rows(lines: Iterable[bytes], _: Fields) -> Iterator[Any]:
    for line in lines:
        try:
            if line.strip():
                yield json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"it is not JSON: {error.msg} at character {error.pos + 1}") from None


def _table_rows(lines: Iterable[bytes], fields: Fields) -> Iterator[Any]:
    """Yield the rows of a table by the names in its first line, whichever delimiter that has."""
    csv.field_size_limit(RECORD_BYTES)  # Python's own is 128 KB
    texts = (decoded(line) for line in lines)
    first = next(texts, "")
    delimiter = max(_DELIMITERS, key=first.count)
    rows = csv.DictReader(chain([first], texts), delimiter=delimiter, skipinitialspace=True)
    for row in rows:
        if None in row:
            raise ValueError("it has more cells than the first line has names")
        yield {name: text if name in fields.own else _value(text) for name, text in row.items()}


def _value(cell: str | None) -> Value | None:
    """Return the number in a cell, so that bounds find it, or its text."""
    if cell and _NUMBER.fullmatch(cell):
        number: int | float = json.loads(cell)
        return number
    return cell or None


RECORDS: dict[str, Callable[[Iterable[bytes], Fields], Iterator[Any]]] = {
    ".jsonl": _json_rows,
    ".csv": _table_rows,
    ".tsv": _table_rows,
}
"""By the suffix of a file."""
RECORDS |= {f"{suffix}.gz": rows for suffix, rows in RECORDS.items()}


def _document(row: Any, fields: Fields) -> Document:
    if not isinstance(row, dict):
        raise TypeError("expected an object with named fields")
    if fields.text not in row:
        known = ", ".join(map(repr, [*row][:_NAMED])) + (", ..." if len(row) > _NAMED else "")
        raise ValueError(
            f"there is no field {fields.text!r} among {known}: name the one with the text by "
            '--field text=NAME, or fields={"text": "NAME"}'
        )
    title, text = row.get(fields.title) or "", row[fields.text] or ""
    if not isinstance(text, str) or not isinstance(title, str):
        raise TypeError(f"{fields.text!r} and {fields.title!r} must be strings")
    title, text = valid(title), valid(text)
    document_id = next((row[name] for name in fields.ids if row.get(name) not in (None, "")), None)
    metadata = _metadata(row, fields, document_id)
    if document_id is None:
        document_id = content_id(title, text, metadata)
    if not isinstance(document_id, (str, int)) or isinstance(document_id, bool):
        raise TypeError(f"{' or '.join(map(repr, fields.ids))} must be a string or an integer")
    if valid(str(document_id)) != str(document_id):
        raise ValueError(f"the id is not valid Unicode: {document_id!r}")
    return Document(document_id, text, title, metadata=metadata)


def _metadata(row: dict[str, Any], fields: Fields, owner: object) -> dict[str, Value]:
    """Return the other fields of a record; what is nested stays as JSON."""
    rest = {name: value for name, value in row.items() if name and name not in fields.own}
    nested = rest.pop("metadata", None)  # as BEIR's collections have it
    rest |= nested if isinstance(nested, dict) else {"metadata": nested}
    flat = {
        valid(name): json.dumps(value) if isinstance(value, (dict, list)) else value
        for name, value in rest.items()
    }
    return checked(
        {name: valid(value) if isinstance(value, str) else value for name, value in flat.items()},
        owner,
    )
