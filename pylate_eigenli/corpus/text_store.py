"""The texts of an index, kept beside its files so that results can be shown and not only named.

One SQLite file in the folder of the index, which knows nothing of it. A text is written just before
the index commits, and says from which state on it holds; what it replaces stays for a while. So a
reader finds the texts of the state it searches, whatever is written meanwhile, and whoever is
killed in between leaves texts nobody asks for, never a document without its text.
"""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import IndexFormatError
from ..storage import DocumentId
from .words import TERM

FILE_NAME = "texts.sqlite"
ALWAYS = 0
"""The state from which on texts hold in an index that has no states, because a server keeps it."""

_FORMAT = 2
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS texts ("
    "id TEXT NOT NULL, since INTEGER NOT NULL, title TEXT NOT NULL, text TEXT NOT NULL, "
    "checksum INTEGER NOT NULL, gone REAL, PRIMARY KEY (id, since))",
    "CREATE INDEX IF NOT EXISTS gone ON texts (gone) WHERE gone IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    f"PRAGMA user_version = {_FORMAT}",
)
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
    >>> texts.put([TextDocument("a", "Apples are sweet.")], since=2, model="colbert")
    >>> texts.get([1, "1"])
    {1: TextDocument(id=1, text='Grass is green.', title='')}
    >>> texts.get(["a"], state=1)["a"].text, texts.get(["a"])["a"].text
    ('Apples are red.', 'Apples are sweet.')
    >>> TextStore(texts.path.parent).model
    'colbert'
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / FILE_NAME

    def put(self, documents: Iterable[TextDocument], since: int, model: str | None = None) -> None:
        """Write texts that hold from a state of the index on, all or none.

        Parameters
        ----------
        documents
            The documents; one without title and text says that there is none from then on.
        since
            Number of the state that is about to be committed, or ``ALWAYS``.
        model
            Name or path of the model that encoded them, if one has.
        """
        rows = [
            (_key(document.id), since, document.title, document.text, _checksum(document))
            for document in documents
        ]
        with self._changing() as connection:
            if since != ALWAYS:
                # Left by somebody who was about to commit this state, and never did.
                connection.execute("DELETE FROM texts WHERE since >= ?", (since,))
            if model is not None:
                connection.execute("INSERT OR REPLACE INTO about VALUES ('model', ?)", (model,))
            connection.executemany(
                "INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?, ?, NULL)", rows
            )

    def get(
        self, documents_ids: Iterable[DocumentId], state: int = _ANY_STATE
    ) -> dict[DocumentId, TextDocument]:
        """Return the texts of documents in a state of the index, without those that have none."""
        with self._reading() as connection:
            found = {}
            for document_id in documents_ids:
                row = connection.execute(_NEWEST, (_key(document_id), state)).fetchone()
                if row is not None and any(row):
                    found[document_id] = TextDocument(document_id, row[1], row[0])
            return found

    def passages(self, file: str) -> list[str]:
        """Return the ids of the form ``file#number``, also of documents that are gone."""
        prefix = _key(f"{file}#")[:-1]
        with self._reading() as connection:
            # "$" comes after "#": the bounds let SQLite find the ids without a scan of all.
            rows = connection.execute(
                "SELECT DISTINCT id FROM texts WHERE id >= ? AND id < ?",
                (prefix, f"{prefix[:-1]}$"),
            )
            ids = [str(json.loads(key)) for (key,) in rows]
        numbers = {passage: passage.removeprefix(f"{file}#") for passage in ids}
        known = [passage for passage, number in numbers.items() if number.isdecimal()]
        return sorted(known, key=lambda passage: int(numbers[passage]))

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
        # Not by SQL: the file may be damaged, or of another version.
        for suffix in ("", "-journal", "-wal", "-shm"):
            self.path.with_name(FILE_NAME + suffix).unlink(missing_ok=True)

    @property
    def model(self) -> str | None:
        """Name or path of the model that encoded the texts; None if nobody has said."""
        with self._reading() as connection:
            row = connection.execute("SELECT value FROM about WHERE name = 'model'").fetchone()
            return None if row is None else str(row[0])

    def damage(self) -> list[str]:
        """Return what is wrong with the file, one line each; empty if all is well."""
        try:
            with self._reading() as connection:
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
        # A connection per use: SQLite's belong to the thread that made them. Transactions are
        # begun where they are needed, not by Python, which commits some of them too early.
        connecting = sqlite3.connect(self.path, timeout=_SECONDS_TO_WAIT, isolation_level=None)
        with closing(connecting) as connection:
            try:
                self._check_format(connection)
                yield connection
            except sqlite3.OperationalError:
                raise  # busy, read-only or full: nothing is wrong with the file
            except sqlite3.DatabaseError as error:
                raise IndexFormatError(f"{self.path} is damaged: {error}") from error

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Open the texts, or an empty database in memory where nothing is written yet."""
        if self.path.is_file():
            with self._connected() as connection:
                if _has_tables(connection):
                    yield connection
                    return
        with closing(sqlite3.connect(":memory:")) as nothing:
            _make_tables(nothing)
            yield nothing

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                _make_tables(connection)
                long_ago = time.time() - _SECONDS_KEPT
                connection.execute("DELETE FROM texts WHERE gone < ?", (long_ago,))
                yield connection

    def _check_format(self, connection: sqlite3.Connection) -> None:
        # At once: between two statements another process may make the tables.
        (version, tables) = connection.execute(
            "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
        ).fetchone()
        if tables and version != _FORMAT:
            raise IndexFormatError(
                f"{self.path} is of another version of this library; index the documents again"
            )


def _has_tables(connection: sqlite3.Connection) -> bool:
    # Whoever is killed while the tables are made leaves a file without any.
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _make_tables(connection: sqlite3.Connection) -> None:
    for statement in _SCHEMA:
        connection.execute(statement)


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
    wanted = {word.lower() for word in TERM.findall(query)}
    words = [(match.start(), match.group().lower()) for match in TERM.finditer(text)]
    places = [(start, word) for start, word in words if word in wanted][:_PLACES]

    def distinct_from(begin: int) -> int:
        return len({word for start, word in places if begin <= start < begin + width})

    best = max((start for start, _ in places), key=distinct_from, default=0)
    # A few words before the first match say what it is about.
    begin = 0 if best < width // 4 else _space_before(text, best - width // 8, width // 4)
    end = begin + width
    if end < len(text):
        end = _space_before(text, end, width // 4)
    return f"{'… ' if begin else ''}{text[begin:end].strip()}{' …' if end < len(text) else ''}"


def _space_before(text: str, position: int, reach: int) -> int:
    """Return where a space before a position ends; the position itself if none is near."""
    space = text.rfind(" ", max(position - reach, 0), position)
    return position if space < 0 else space + 1


def _checksum(document: TextDocument) -> int:
    return zlib.crc32(f"{document.title}\0{document.text}".encode())


def _key(document_id: DocumentId) -> str:
    """Return the id as text: SQLite's integers are too small for some, and 7 is not "7"."""
    return json.dumps(document_id)
