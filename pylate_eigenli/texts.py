"""The texts of an index, kept beside its files so that results can be shown and not only named.

One SQLite file in the folder of the index, which knows nothing of it. A text is written just before
the index commits, and says from which state on it holds; what it replaces stays for a while. So a
reader finds the texts of the state it searches, whatever is written meanwhile, and whoever is
killed in between leaves texts nobody asks for, never a document without its text.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .errors import IndexFormatError
from .storage import DocumentId

FILE_NAME = "texts.sqlite"

_FORMAT = 2
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS texts (
    id TEXT NOT NULL, since INTEGER NOT NULL, title TEXT NOT NULL, text TEXT NOT NULL,
    checksum INTEGER NOT NULL, gone REAL, PRIMARY KEY (id, since)
);
CREATE INDEX IF NOT EXISTS gone ON texts (gone) WHERE gone IS NOT NULL;
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
PRAGMA user_version = {_FORMAT};
"""
_NEWEST = """
SELECT title, text FROM texts WHERE id = ? AND since <= ? ORDER BY since DESC LIMIT 1
"""
_ANY_STATE = 2**63 - 1
_SECONDS_KEPT = 60.0  # what no longer holds: longer than any search takes
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
    >>> fruit, grass = TextDocument("a", "Apples are red."), TextDocument(1, "Grass is green.")
    >>> texts.put([fruit, grass], since=1)
    >>> texts.put([TextDocument("a", "Apples are sweet.")], since=2)
    >>> texts.get([1, "1"])
    {1: TextDocument(id=1, text='Grass is green.', title='')}
    >>> texts.get(["a"], state=1)["a"].text, texts.get(["a"])["a"].text
    ('Apples are red.', 'Apples are sweet.')
    >>> texts.model = "colbert"
    >>> TextStore(texts.path.parent).model
    'colbert'
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / FILE_NAME

    def put(self, documents: Iterable[TextDocument], since: int) -> None:
        """Write texts that hold from a state of the index on, all or none.

        Parameters
        ----------
        documents
            The documents; one without title and text says that there is none from then on.
        since
            Number of the state that is about to be committed.
        """
        rows = [
            (_key(document.id), since, document.title, document.text, _checksum(document))
            for document in documents
        ]
        with self._changing() as connection:
            # Left by somebody who was about to commit this state, and never did.
            connection.execute("DELETE FROM texts WHERE since >= ?", (since,))
            connection.executemany(
                "INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?, ?, NULL)", rows
            )

    def get(
        self, documents_ids: Iterable[DocumentId], state: int = _ANY_STATE
    ) -> dict[DocumentId, TextDocument]:
        """Return the texts of documents in a state of the index, without those that have none."""
        if not self.path.is_file():
            return {}
        with self._connected() as connection:
            found = {}
            for document_id in documents_ids:
                row = connection.execute(_NEWEST, (_key(document_id), state)).fetchone()
                if row is not None and any(row):
                    found[document_id] = TextDocument(document_id, row[1], row[0])
            return found

    def discard(self, documents_ids: Iterable[DocumentId], state: int) -> None:
        """Let go of what no longer holds in a state; it stays for searches that have begun."""
        if self.path.is_file():
            with self._changing() as connection:
                connection.executemany(
                    "UPDATE texts SET gone = ? WHERE id = ? AND gone IS NULL "
                    "AND (since < ? OR title || text = '')",
                    [(time.time(), _key(document_id), state) for document_id in documents_ids],
                )

    def compact(self) -> None:
        """Delete at once what was let go of, and give its space back to the disk."""
        if self.path.is_file():
            with self._changing() as connection:
                connection.execute("DELETE FROM texts WHERE gone IS NOT NULL")
            with self._connected() as connection:
                connection.execute("VACUUM")

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
                rows = connection.execute("SELECT id, title, text, checksum FROM texts")
                lines += [
                    f"the text of document {key} is altered"
                    for key, title, text, checksum in rows
                    if _checksum(TextDocument(0, text, title)) != checksum
                ]
        except (IndexFormatError, sqlite3.OperationalError) as error:
            return [str(error)]
        return [f"{self.path} is damaged: {line}" for line in lines if line != "ok"]

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        # A connection per use: SQLite's belong to the thread that made them.
        with closing(sqlite3.connect(self.path, timeout=_SECONDS_TO_WAIT)) as connection:
            try:
                self._check_format(connection)
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
            connection.execute("DELETE FROM texts WHERE gone < ?", (time.time() - _SECONDS_KEPT,))
            yield connection

    def _check_format(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and version != _FORMAT:
            raise IndexFormatError(
                f"{self.path} is of another version of this library; index the documents again"
            )


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


def _checksum(document: TextDocument) -> int:
    return zlib.crc32(f"{document.title}\0{document.text}".encode())


def _key(document_id: DocumentId) -> str:
    """Return the id as text: SQLite's integers are too small for some, and 7 is not "7"."""
    return json.dumps(document_id)
