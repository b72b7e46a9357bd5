"""Changes of an index together with its catalogue, and checks that the two agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import IndexFormatError, IndexLockedError
from ..indexes.base import DocumentIndex
from ..models.fingerprint import fingerprint_of
from ..storage import Store, Transaction
from ..storage.lock import LOCK_NAME, OWNER_NAME, writer_lock
from ..storage.manifest import FILE_NAME, Manifest, holds_index
from .catalogue import ALWAYS, CATALOGUE, Catalogue, newest_rows
from .catalogue_file import CATALOGUE_FILES
from .document import Document
from .origin import is_trusted


@contextmanager
def changing(
    index: DocumentIndex[Any, Any],
    catalogue: Catalogue,
    documents: Sequence[Document],
    about: dict[str, str],
    check: Callable[[], None],
    *,
    removed: bool = False,
) -> Iterator[None]:
    """Change the catalogue together with the index, which the block changes.

    Parameters
    ----------
    index, catalogue
        The index and its catalogue.
    documents
        The documents that the block adds or removes.
    about
        Facts about the index to keep.
    check
        Called when nobody else can write; raises an error if the documents no longer fit the index.
    removed
        Whether the documents are removed.
    """
    folder = catalogue.path.parent
    made: list[int] = []
    is_new = not folder.exists()
    if index.in_database:
        try:
            yield from _changing_database(index, catalogue, documents, about, removed)
        except BaseException:
            if is_new:
                _delete_empty(folder)
            raise
        return

    def write_catalogue(transaction: Transaction) -> None:
        base, generation = transaction.base, transaction.base.generation + 1
        if index.is_overriding:
            catalogue.file.set_aside(base.generation)
        elif about:
            check()
        catalogue.put(documents, generation, about, newest_rows(folder, base))
        if transaction.meta:  # that of an index without documents stays empty
            transaction.meta[CATALOGUE] = generation
        made.append(generation)

    try:
        with index.accompanied(write_catalogue):
            yield
    except BaseException:
        if is_new:
            _delete_empty(folder)
        raise
    finally:
        recover(folder)
    catalogue.discard((document.id for document in documents), made[-1], removed=removed)


def _delete_empty(folder: Path) -> None:
    """Delete the folder of an index whose first change has failed, if it holds no documents."""
    with suppress(OSError, IndexLockedError), writer_lock(folder):
        names = {path.name for path in folder.iterdir()} - {LOCK_NAME}
        if names <= {FILE_NAME, OWNER_NAME, *CATALOGUE_FILES} and not holds_index(folder):
            for name in names:
                (folder / name).unlink()
            # While it is held: nobody else holds it, and filelock refuses a lock without a file to
            # whoever has opened the file by now.
            (folder / LOCK_NAME).unlink()
            folder.rmdir()


def _changing_database(
    index: DocumentIndex[Any, Any],
    catalogue: Catalogue,
    documents: Sequence[Document],
    about: dict[str, str],
    removed: bool,
) -> Iterator[None]:
    """Change the catalogue of a database, which shows documents as they arrive.

    Rows are written before their documents and deleted after them. If the database fails in
    between, adding the same documents again completes both.
    """
    folder = catalogue.path.parent
    if not removed:
        if index.is_overriding:
            catalogue.file.set_aside(index.generation)
        catalogue.put(documents, ALWAYS, about)
    try:
        yield
    finally:
        recover(folder)
    mark(folder, ALWAYS)
    index.refresh()
    if removed:
        catalogue.put(documents, ALWAYS)
        catalogue.discard((document.id for document in documents), ALWAYS, removed=True)


def compact(folder: Path, catalogue: Catalogue) -> None:
    """Give the space of removed and replaced documents of files back to the disk."""
    # One transaction: nobody else can write between the two steps.
    with Store(folder).transaction() as transaction:
        catalogue.compact(newest_rows(folder, transaction.base))
        transaction.compact()


def recover(path: str | Path) -> None:
    """Finish an override, or undo it if it failed or was killed before the commit."""
    folder, catalogue = Path(path), Catalogue(path)
    if catalogue.file.is_set_aside:
        # If the index is locked, the override is still running.
        with suppress(IndexLockedError), writer_lock(folder):
            try:
                generation = Manifest.read(folder).generation
            except IndexFormatError:  # then nobody knows which of the catalogues holds
                return
            catalogue.file.recover(generation)


def mark(path: str | Path, generation: int) -> None:
    """Note in the manifest of an index that its catalogue has rows of a generation."""
    with Store(path).transaction() as transaction:
        if transaction.meta:
            transaction.meta[CATALOGUE] = generation


def verify(path: str | Path) -> list[str]:
    """Return what is damaged in the folder of an index, one line each; empty if all is well.

    The model is not loaded, and a database is not contacted: only files are checked.
    """
    try:
        recover(path)
    except IndexFormatError as error:
        return [str(error)]
    store = Store(path)
    damage = store.verify()
    if damage:  # then nothing can be said about its documents
        return [*damage, *Catalogue(path).damage()]
    catalogue = Catalogue(path)
    try:
        snapshot = store.snapshot
        ids, newest = list(snapshot), newest_rows(Path(path), snapshot)
    except IndexFormatError as error:
        return [str(error)]
    damage = catalogue.damage(ids, newest, expected=CATALOGUE in snapshot.meta)
    if damage:
        return damage
    about = catalogue.about
    if not is_trusted(Path(path), about):
        return []
    recorded, now = about.get("fingerprint"), fingerprint_of(about.get("model", ""))
    if recorded and now and recorded != now:
        return [f"the model {about['model']} has changed since it encoded the documents"]
    return []
