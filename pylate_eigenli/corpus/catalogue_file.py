"""The file of a catalogue: its tables, its format, and the override that replaces it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path

from ..errors import IndexFormatError
from ..storage.disk import check_file, check_no_folder, delete_file
from . import metadata

FILE_NAME = "texts.sqlite"

_FORMAT = 4
_WITHOUT_METADATA = 3  # the format before it, which is read, and brought up to date by a change
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS texts ("
    "id TEXT NOT NULL, since INTEGER NOT NULL, title TEXT NOT NULL, text TEXT NOT NULL, "
    "checksum INTEGER NOT NULL, gone REAL, file TEXT, page INTEGER, fingerprint TEXT NOT NULL, "
    "PRIMARY KEY (id, since))",
    "CREATE INDEX IF NOT EXISTS gone ON texts (gone) WHERE gone IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS files ON texts (file) WHERE file IS NOT NULL",
    *metadata.SCHEMA,
    "CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    f"PRAGMA user_version = {_FORMAT}",
)
_SECONDS_KEPT = 60.0  # of replaced and removed rows: longer than any search takes
_SECONDS_TO_WAIT = 60.0  # for another process that is writing
_SUFFIXES = ("", "-journal", "-wal", "-shm")  # SQLite's files
CATALOGUE_FILES = tuple(FILE_NAME + suffix for suffix in _SUFFIXES)
"""The names of the files of a catalogue."""
_ASIDE = f"{FILE_NAME}.of-"  # with the generation that an override replaces


class CatalogueFile:
    """The SQLite file in the folder of an index.

    Parameters
    ----------
    folder
        The folder of the index. The file is made by the first change.

    Examples
    --------
    >>> import tempfile
    >>> file = CatalogueFile(tempfile.mkdtemp())
    >>> with file.changing() as connection:
    ...     _ = connection.execute("INSERT INTO about VALUES ('model', 'colbert')")
    >>> with file.reading() as connection:
    ...     connection.execute("SELECT value FROM about").fetchone()
    ('colbert',)
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / FILE_NAME

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        """Open the file; raise an error if it is damaged or not of this library."""
        # A connection per use: SQLite's belong to the thread that made them. Transactions are
        # begun where they are needed, not by Python, which commits some of them too early.
        for suffix in _SUFFIXES:
            check_file(self.path.with_name(FILE_NAME + suffix))
        connecting = sqlite3.connect(self.path, timeout=_SECONDS_TO_WAIT, isolation_level=None)
        with closing(connecting) as connection:
            try:
                self._check_format(connection)
                yield connection
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError) and "UTF-8" not in str(error):
                    # Busy, read-only or full: the file itself is sound.
                    raise sqlite3.OperationalError(f"{self.path}: {error}") from error
                raise IndexFormatError(f"{self.path} is damaged: {error}") from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open the catalogue, or an empty one in memory where nothing is written yet."""
        if self.path.exists() or self.path.is_symlink():
            with self.connected() as connection:
                if _has_tables(connection):
                    if _format(connection) == _WITHOUT_METADATA:
                        connection.execute(metadata.NOTHING)
                    yield connection
                    return
        with closing(sqlite3.connect(":memory:")) as nothing:
            _make_tables(nothing)
            yield nothing

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Open the file for a change, all or none, which also deletes rows that are long gone."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                _make_tables(connection)
                long_ago = time.time() - _SECONDS_KEPT
                connection.execute("DELETE FROM texts WHERE gone < ?", (long_ago,))
                yield connection

    def _check_format(self, connection: sqlite3.Connection) -> None:
        # In one statement: between two, another process may make the tables.
        rows = connection.execute(
            "SELECT user_version, type, sql FROM pragma_user_version LEFT JOIN sqlite_master"
        ).fetchall()
        version, made = rows[0][0], {(kind, sql) for _, kind, sql in rows if sql is not None}
        if made and version not in (_FORMAT, _WITHOUT_METADATA):
            raise IndexFormatError(
                f"{self.path} is of another version of this library; index the documents again"
            )
        # A view or a trigger of others could do anything with what is read and written. SQLite's
        # indexes may be missing: the next change makes them.
        known = _statements(version) if made else set()
        if not {pair for pair in known if pair[0] == "table"} <= made <= known:
            raise IndexFormatError(f"{self.path} has other tables than this library makes")

    def set_aside(self, generation: int) -> None:
        """Begin the commit that replaces a generation: keep the old catalogue until it is done."""
        if self.path.exists() or self.path.is_symlink():
            with suppress(IndexFormatError), self.connected():
                pass  # SQLite undoes what a killed process has begun, so one file is all there is
            check_file(self.path)
            aside = self.path.with_name(f"{_ASIDE}{generation}")
            check_no_folder(aside)
            self.path.replace(aside)
        self._delete_journals()

    def _delete_journals(self) -> None:
        """Delete SQLite's other files: those of one catalogue would spoil another."""
        for suffix in _SUFFIXES[1:]:
            delete_file(self.path.with_name(FILE_NAME + suffix))

    @property
    def is_set_aside(self) -> bool:
        """Whether the commit of an override has begun and not ended."""
        return any(self.path.parent.glob(f"{_ASIDE}*"))

    def recover(self, generation: int) -> None:
        """End an override: delete the old catalogue, or put it back if its generation still holds."""
        for path in self.path.parent.glob(f"{_ASIDE}*"):
            check_file(path)
            if path.name == f"{_ASIDE}{generation}":  # the new one is of a commit that never came
                check_no_folder(self.path)
                self._delete_journals()
                path.replace(self.path)
            else:
                path.unlink()


def _has_tables(connection: sqlite3.Connection) -> bool:
    # A process that is killed while it makes the tables leaves a file without any.
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _format(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _make_tables(connection: sqlite3.Connection) -> None:
    for statement in _SCHEMA:
        connection.execute(statement)


@cache
def _statements(version: int) -> set[tuple[str, str]]:
    """Return what SQLite keeps of the statements that make the tables of a format, with the kind."""
    with closing(sqlite3.connect(":memory:")) as empty:
        for statement in _SCHEMA:
            if version == _FORMAT or statement not in metadata.SCHEMA:
                empty.execute(statement)
        return set(empty.execute("SELECT type, sql FROM sqlite_master WHERE sql IS NOT NULL"))
