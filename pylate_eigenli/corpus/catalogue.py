"""The catalogue of an index: titles, texts and pages of its documents.

The catalogue is one SQLite file in the folder of the index. It holds the title of each document,
its text or the page it is, its metadata, and the file it was read from. A row is written just
before the index commits, with the generation that the commit makes, and the manifest of the commit
names the generation of the newest rows. So a reader finds the rows of the state it searches, even
while another process writes. The rows of a commit that failed are newer than the manifest says,
whatever is committed after it; the next rows to be written take their place, under the writer's lock.
"""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import IndexFormatError
from ..storage import DocumentId, Snapshot
from . import metadata
from .catalogue_file import CatalogueFile
from .document import Document
from .metadata import Value, Where

ALWAYS = 0
"""The generation of all rows of an index in a database, which has no generations."""
CATALOGUE = "catalogue"
"""Key of the manifest's meta: the generation of the newest rows of the catalogue."""

_COLUMNS = "title, text, file, page, fingerprint"
_NEWEST = (
    f"SELECT {_COLUMNS}, since FROM texts WHERE id = ? AND since <= ? ORDER BY since DESC LIMIT 1"
)
_FILES = (
    "SELECT COUNT(*) FROM (SELECT DISTINCT file FROM texts WHERE file IS NOT NULL) AS known "
    "WHERE EXISTS (SELECT 1 FROM texts WHERE file = known.file AND gone IS NULL AND since <= ?)"
)
# Both are answered by an index of the table, without reading texts.
_PASSAGES = (
    "SELECT COUNT(*) FROM texts WHERE file IS NOT NULL",
    "SELECT -COUNT(*) FROM texts WHERE file IS NOT NULL AND gone IS NOT NULL",
)
_NEWEST_ROWS = "SELECT since, file IS NOT NULL AND gone IS NULL FROM texts ORDER BY rowid DESC"
_ANY_GENERATION = 2**63 - 1
_NAMED = 5  # documents that a report names


class Catalogue:
    """Documents by their ids, and how the index was made.

    Objects of this class may be shared between threads.

    Parameters
    ----------
    folder
        The folder of the index. The file is made by the first write.

    Examples
    --------
    >>> import tempfile
    >>> catalogue = Catalogue(tempfile.mkdtemp())
    >>> catalogue.put([Document("a", "Apples are red."), Document(1, "Grass is green.")], since=1)
    >>> catalogue.put([Document("a", "Apples are sweet.")], since=2, about={"model": "colbert"})
    >>> [document.text for document in catalogue.get([1, "1"]).values()]
    ['Grass is green.']
    >>> catalogue.get(["a"], generation=1)["a"].text, catalogue.get(["a"])["a"].text
    ('Apples are red.', 'Apples are sweet.')
    >>> Catalogue(catalogue.path.parent).about
    {'model': 'colbert'}
    """

    def __init__(self, folder: str | Path) -> None:
        self.file = CatalogueFile(folder)
        self.path = self.file.path

    # --- writing ------------------------------------------------------------------------------

    def put(
        self,
        documents: Iterable[Document],
        since: int,
        about: Mapping[str, str] | None = None,
        after: int | None = None,
    ) -> None:
        """Write documents that belong to a generation of the index, all or none.

        Parameters
        ----------
        documents
            The documents; one without title and text hides the earlier row of its id.
        since
            The generation that is about to be committed, or ``ALWAYS``.
        about
            Facts about the index by name, for instance the model.
        after
            The generation of the newest committed rows, by default the one before; newer ones are
            of commits that failed, and deleted.
        """
        written = list(documents)
        rows = [
            (
                *(_key(document.id), since, document.title, document.text, _checksum(document)),
                *(document.file, document.page, document.fingerprint),
            )
            for document in written
        ]
        with self.file.changing() as connection:
            if since != ALWAYS:
                newest = since - 1 if after is None else after
                connection.execute("DELETE FROM texts WHERE since > ?", (newest,))
            connection.executemany(
                "INSERT OR REPLACE INTO about VALUES (?, ?)", (about or {}).items()
            )
            connection.executemany(
                "INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?, ?, NULL, ?, ?, ?)", rows
            )
            metadata.write(connection, since, ((_key(d.id), d.metadata) for d in written))

    def discard(
        self, documents_ids: Iterable[DocumentId], generation: int, *, removed: bool
    ) -> None:
        """Mark rows that a generation has replaced or removed; they are deleted a minute later.

        The generation is committed by now, so a full disk is no reason to fail: compacting finds
        the rows, too.
        """
        if self.path.is_file():
            newest = generation + 1 if removed else generation
            with suppress(sqlite3.OperationalError), self.file.changing() as connection:
                connection.executemany(
                    "UPDATE texts SET gone = ? WHERE id = ? AND gone IS NULL AND since < ?",
                    [(time.time(), _key(document_id), newest) for document_id in documents_ids],
                )

    def compact(self, generation: int) -> None:
        """Delete all rows that do not belong to a generation, and give their space back."""
        if self.path.is_file():
            with self.file.changing() as connection:
                connection.execute(
                    "DELETE FROM texts WHERE gone IS NOT NULL OR since > :now OR EXISTS (SELECT 1 "
                    "FROM texts AS newer WHERE newer.id = texts.id AND newer.since > texts.since "
                    "AND newer.since <= :now)",
                    {"now": generation},
                )
            # It needs space for a copy, which a full disk has not.
            with suppress(sqlite3.OperationalError), self.file.connected() as connection:
                connection.execute("VACUUM")

    # --- reading ------------------------------------------------------------------------------

    def get(
        self, documents_ids: Iterable[DocumentId], generation: int = _ANY_GENERATION
    ) -> dict[DocumentId, Document]:
        """Return documents of a generation by id, without unknown ids."""
        with self.file.reading() as connection:
            found = {}
            for document_id in documents_ids:
                key = _key(document_id)
                row = connection.execute(_NEWEST, (key, generation)).fetchone()
                if row is not None and (row[0] or row[1]):
                    *columns, since = row
                    values = metadata.read(connection, key, since)
                    found[document_id] = _document(document_id, columns, values)
            return found

    def matching(self, where: Where, generation: int = _ANY_GENERATION) -> list[DocumentId]:
        """Return the ids of the documents of a generation whose metadata fulfil all conditions."""
        with self.file.reading() as connection:
            return [_id(key) for key in metadata.matching(connection, where, generation)]

    def of_file(self, file: str, generation: int = _ANY_GENERATION) -> dict[str, str]:
        """Return the ids of the passages or pages of a file, in their order, with fingerprints.

        These are the ids ``file#number``, and ``file`` itself if it is a single image, of removed
        documents too.
        """
        prefix = _key(f"{file}#")[:-1]
        with self.file.reading() as connection:
            # "$" comes after "#": the bounds let SQLite find the ids without a scan of all.
            rows = connection.execute(
                "SELECT id, fingerprint FROM texts WHERE since <= ? "
                "AND (file = ? OR (id >= ? AND id < ?)) ORDER BY since",
                (generation, file, prefix, f"{prefix[:-1]}$"),
            )
            newest = {str(_id(key)): fingerprint for key, fingerprint in rows}
        numbers = {i: i.removeprefix(f"{file}#") for i in newest if i != file}
        known = [i for i, number in numbers.items() if number.isdecimal()]
        known.sort(key=lambda i: int(numbers[i]))
        return {i: newest[i] for i in ([file] if file in newest else []) + known}

    def files(self) -> list[str]:
        """Return the files of all pages, also of removed ones."""
        with self.file.reading() as connection:
            rows = connection.execute("SELECT DISTINCT file FROM texts WHERE typeof(file) = 'text'")
            return sorted(file for (file,) in rows)

    def records(self, generation: int) -> list[DocumentId]:
        """Return the ids of the documents of a generation that are not of a file."""
        with self.file.reading() as connection:
            rows = connection.execute(
                "SELECT DISTINCT id FROM texts WHERE file IS NULL AND gone IS NULL AND since <= ?",
                (generation,),
            )
            return [_id(key) for (key,) in rows]

    def count_passages(self, generation: int) -> tuple[int, int]:
        """Return the numbers of passages or pages of a generation, and of their files."""
        with self.file.reading() as connection:
            (files,) = connection.execute(_FILES, (generation,)).fetchone()
            passages = sum(connection.execute(count).fetchone()[0] for count in _PASSAGES)
            # Rows are written in the order of generations: those of later ones are the last.
            for since, is_passage in connection.execute(_NEWEST_ROWS):
                if since <= generation:
                    break
                passages -= is_passage
            return int(passages), int(files)

    @property
    def about(self) -> dict[str, str]:
        """How the index was made: its ``model``, and the ``folder`` of an index of pages."""
        with self.file.reading() as connection:
            facts = dict(connection.execute("SELECT name, value FROM about"))
            if not all(isinstance(fact, str) for pair in facts.items() for fact in pair):
                raise sqlite3.DataError("a fact about the index is not a text")
            return facts

    def damage(
        self,
        documents_ids: Iterable[DocumentId] = (),
        generation: int = 0,
        *,
        expected: bool = False,
    ) -> list[str]:
        """Return what is wrong with the catalogue, one line each; empty if all is well.

        Parameters
        ----------
        documents_ids, generation
            The documents of the index, and its generation; both sides are compared.
        expected
            Whether the index had a catalogue when it was last changed.
        """
        documents = {_key(document_id) for document_id in documents_ids}
        if not self.path.exists() and not self.path.is_symlink():
            if not expected:
                return []
            return [
                f"{self.path} is missing: it held the texts of the documents and the name of "
                "their model"
            ]
        try:
            with self.file.reading() as connection:
                lines = [row[0] for row in connection.execute("PRAGMA integrity_check")]
                rows = connection.execute(
                    f"SELECT id, {_COLUMNS}, checksum, since FROM texts ORDER BY id, since"
                )
                lines += [
                    f"the row of document {key} is altered"
                    for key, *row, checksum, since in rows
                    if _checksum(_document(_id(key), row, metadata.read(connection, key, since)))
                    != checksum
                ]
                known, shown = _present(connection, generation)
        except (IndexFormatError, OSError, sqlite3.OperationalError) as error:
            return [str(error)]
        damage = [f"{self.path} is damaged: {line}" for line in lines if line != "ok"]
        for keys, what in (
            (documents - known, "documents of the index are not in"),
            (shown - documents, "documents that the index does not hold are in"),
        ):
            if keys:
                named = ", ".join(sorted(keys)[:_NAMED]) + (", ..." if len(keys) > _NAMED else "")
                damage.append(f"{len(keys):,} {what} {self.path}: {named}")
        return damage


def newest_rows(folder: Path, state: Snapshot) -> int:
    """Return the generation of the newest rows of the catalogue that belong to a state."""
    newest = state.meta.get(CATALOGUE, ALWAYS)
    if type(newest) is not int or not ALWAYS <= newest <= state.generation:
        raise IndexFormatError(
            f"{folder} is of generation {state.generation}, but its texts are of {newest!r:.40}"
        )
    return newest


def holding(about: Mapping[str, str]) -> str:
    """Return "texts" or "pages", from the facts in a catalogue."""
    return "pages" if "folder" in about else "texts"


def _present(connection: sqlite3.Connection, generation: int) -> tuple[set[str], set[str]]:
    """Return the keys of all documents of a generation, and of those that have texts."""
    rows = connection.execute(
        "SELECT id, title || text != '', gone IS NULL FROM texts WHERE since <= ? AND since > ? "
        "ORDER BY since",
        (generation, ALWAYS),
    )
    newest = {key: (has_text, stays) for key, has_text, stays in rows}
    held = {key: has_text for key, (has_text, stays) in newest.items() if stays}
    return set(held), {key for key, has_text in held.items() if has_text}


def _document(document_id: DocumentId, row: Iterable[Any], values: Mapping[str, Value]) -> Document:
    title, text, file, page, fingerprint = row
    is_typed = all(isinstance(part, str) for part in (title, text, fingerprint, file or ""))
    if not is_typed or not isinstance(page or 0, int):
        raise sqlite3.DataError(f"the row of document {document_id!r} has values of other types")
    return Document(document_id, text, title, file, page, fingerprint, values)


def _id(key: object) -> DocumentId:
    """Invert :func:`_key`."""
    with suppress(ValueError, TypeError, RecursionError):
        document_id = json.loads(key)  # type: ignore[arg-type]
        if type(document_id) in (str, int):
            return document_id  # type: ignore[no-any-return]
    raise sqlite3.DataError(f"{key!r:.100} is not the id of a document")


def _checksum(document: Document) -> int:
    parts = [document.title, document.text]
    if document.fingerprint or document.file:
        parts += [str(document.file), str(document.page), document.fingerprint]
    if document.metadata:
        parts.append(json.dumps(sorted(document.metadata.items())))
    return zlib.crc32("\0".join(parts).encode())


def _key(document_id: DocumentId) -> str:
    """Return the id as text: SQLite's integers are too small for some, and 7 is not "7"."""
    return json.dumps(document_id)
