"""The texts of an index, kept beside its files so that results can be shown and not only named.

One SQLite file in the folder of the index, which knows nothing of it. Texts are written before the
index commits and deleted after, so that whoever is killed in between leaves texts nobody asks for,
never a document without its text.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .errors import IndexFormatError
from .storage import DocumentId

FILE_NAME = "texts.sqlite"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS texts (id TEXT PRIMARY KEY, title TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_SNIPPET = 240  # characters
_PLACES = 200  # where a snippet may begin: in a long text some words are everywhere
_SECONDS_TO_WAIT = 60.0  # for another process that is writing


@dataclass(frozen=True)
class TextDocument:
    """A document as its reader sees it.

    Examples
    --------
    >>> TextDocument(7, "Apples are red.", title="Fruit").whole
    'Fruit\\nApples are red.'
    """

    id: DocumentId
    text: str
    title: str = ""

    @property
    def whole(self) -> str:
        """What is encoded: the title, if there is one, then the text."""
        return f"{self.title}\n{self.text}" if self.title else self.text


class TextStore:
    """Texts by document id, and the name of the model that encoded them.

    Objects of this class may be shared between threads.

    Parameters
    ----------
    folder
        The folder of the index. Nothing is created in it before something is written.

    Examples
    --------
    >>> import tempfile
    >>> texts = TextStore(tempfile.mkdtemp())
    >>> texts.put([TextDocument("a", "Apples are red."), TextDocument(1, "Grass is green.")])
    >>> texts.get([1, "1"])
    {1: TextDocument(id=1, text='Grass is green.', title='')}
    >>> texts.model = "colbert"
    >>> TextStore(texts.path.parent).model
    'colbert'
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / FILE_NAME

    def put(self, documents: Iterable[TextDocument]) -> None:
        """Add or replace texts, all or none."""
        rows = [(_key(document.id), document.title, document.text) for document in documents]
        if rows:
            with self._changing() as connection:
                connection.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?, ?)", rows)

    def get(self, documents_ids: Iterable[DocumentId]) -> dict[DocumentId, TextDocument]:
        """Return the texts of documents by id, without those that are unknown."""
        if not self.path.is_file():
            return {}
        with self._connected() as connection:
            found = {}
            for document_id in documents_ids:
                query = "SELECT title, text FROM texts WHERE id = ?"
                row = connection.execute(query, (_key(document_id),)).fetchone()
                if row is not None:
                    found[document_id] = TextDocument(document_id, row[1], row[0])
            return found

    def discard(self, documents_ids: Iterable[DocumentId]) -> None:
        """Delete texts; ids that are unknown are ignored."""
        if self.path.is_file():
            with self._changing() as connection:
                ids = [(_key(document_id),) for document_id in documents_ids]
                connection.executemany("DELETE FROM texts WHERE id = ?", ids)

    def clear(self) -> None:
        """Delete all texts and the name of the model."""
        if self.path.is_file():
            with self._changing() as connection:
                connection.executescript("DELETE FROM texts; DELETE FROM about;")

    @property
    def model(self) -> str | None:
        """Name or path of the model that encoded the texts; None if nobody has said."""
        if not self.path.is_file():
            return None
        with self._connected() as connection:
            row = connection.execute("SELECT value FROM about WHERE name = 'model'").fetchone()
            return None if row is None else str(row[0])

    @model.setter
    def model(self, name: str) -> None:
        with self._changing() as connection:
            connection.execute("INSERT OR REPLACE INTO about VALUES ('model', ?)", (name,))

    def damage(self) -> list[str]:
        """Return what is wrong with the file, one line each; empty if all is well."""
        if not self.path.is_file():
            return []
        try:
            with self._connected() as connection:
                lines = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        except (IndexFormatError, sqlite3.OperationalError) as error:
            return [str(error)]
        return [f"{self.path} is damaged: {line}" for line in lines if line != "ok"]

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        # A connection per use: SQLite's belong to the thread that made them.
        with closing(sqlite3.connect(self.path, timeout=_SECONDS_TO_WAIT)) as connection:
            try:
                yield connection
            except sqlite3.OperationalError:
                raise  # busy, read-only or full: nothing is wrong with the file
            except sqlite3.DatabaseError as error:
                raise IndexFormatError(f"{self.path} is damaged: {error}") from error

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._connected() as connection, connection:
            connection.executescript(_SCHEMA)
            yield connection


def snippet(text: str, query: str, width: int = _SNIPPET) -> str:
    """Return the part of a text, of about ``width`` characters, with the most words of a query.

    Examples
    --------
    >>> snippet("The sky is blue. Most apples that grow here are red.", "red apples", width=30)
    '… Most apples that grow here …'
    """
    text = " ".join(text.split())
    if len(text) <= width:
        return text
    wanted = set(re.findall(r"\w+", query.lower()))
    words = [(match.start(), match.group().lower()) for match in re.finditer(r"\w+", text)]
    places = [(start, word) for start, word in words if word in wanted][:_PLACES]

    def distinct_from(begin: int) -> int:
        return len({word for start, word in places if begin <= start < begin + width})

    best = max((start for start, _ in places), key=distinct_from, default=0)
    # A few words before the first match say what it is about.
    begin = 0 if best < width // 4 else text.rfind(" ", 0, best - width // 8) + 1
    end = begin + width
    if end < len(text):
        end = max(text.rfind(" ", begin, end), begin + 1)
    return f"{'… ' if begin else ''}{text[begin:end].strip()}{' …' if end < len(text) else ''}"


def _key(document_id: DocumentId) -> str:
    """Return the id as text: SQLite's integers are too small for some, and 7 is not "7"."""
    return json.dumps(document_id)
