"""Updates: an index follows a source, in commits that survive an interruption."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..storage import DocumentId
from .corpus_index import CorpusIndex
from .document import Document
from .sources import Part

Progress = Callable[[int, int], object]
"""Called with the numbers of parts and of documents done since the last call."""


def no_progress(_parts: int, _documents: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Update:
    """Numbers of documents that an update has added, left unchanged and removed.

    Of those added, ``records`` are of no file, and all others are passages or pages of so many
    ``files``. ``is_pruned`` is False if records should have been removed, and a file of records
    could not be read.

    Examples
    --------
    >>> Update(added=3, unchanged=2, removed=1).added
    3
    """

    added: int = 0
    unchanged: int = 0
    removed: int = 0
    files: int = 0
    records: int = 0
    is_pruned: bool = True


def update(
    index: CorpusIndex,
    parts: Iterable[Part],
    *,
    commit_size: int,
    encode_size: int | None = None,
    replace: bool = False,
    prune: Container[str] | None = None,
    progress: Progress = no_progress,
) -> Update:
    """Add the new documents of a source to an index, and replace changed ones.

    Of several documents with the same id the last one counts. A passage or page is unchanged if the
    index holds it with the fingerprint of its file, a record if the index holds its id with the same
    title, text and metadata. Passages and pages that a file no longer has are removed. After an
    interruption, the next update continues after the last commit.

    Parameters
    ----------
    index
        The index.
    parts
        The documents of each record or file.
    commit_size
        Number of documents per commit.
    encode_size
        Number of documents whose contents are in memory at a time; by default ``commit_size``.
    replace
        Whether to encode unchanged documents again.
    prune
        The names of all files of the source, to remove whatever the source does not have: the
        passages of other files, and all other documents that are not among its records.
    progress
        Called with the numbers of parts and of documents done since the last call.
    """
    state = _Update(index, commit_size, encode_size or commit_size, replace, prune, progress)
    for part in parts:
        state.take(part)
    return state.finish()


@dataclass
class _Update:
    index: CorpusIndex
    commit_size: int
    encode_size: int
    replace: bool
    prune: Container[str] | None
    progress: Progress
    added: int = 0
    unchanged: int = 0
    files: int = 0
    records: int = 0
    is_cut_short: bool = False
    # Records of the source, if others are to be removed.
    kept: set[DocumentId] = field(default_factory=set)
    outdated: list[DocumentId] = field(default_factory=list)
    # Documents to be encoded, and encoded ones to be committed.
    waiting: dict[DocumentId, tuple[Document, Any]] = field(default_factory=dict)
    encoded: dict[DocumentId, tuple[Document, NDArray[np.float32]]] = field(default_factory=dict)

    def take(self, part: Part) -> None:
        known = {} if part.file is None else self.index.of_file(part.file)
        stays = set()
        is_new = False
        for document in part.documents:
            held = known.get(str(document.id))
            # Documents that were added without a file have no fingerprint.
            is_unchanged = held is not None and held in ("", document.fingerprint)
            if is_unchanged and not self.replace:
                self.unchanged += 1
                stays.add(document.id)
                continue
            content = part.content(document)
            if content is not None:
                stays.add(document.id)
                is_new = True
                self.waiting[document.id] = (document, content)
                if len(self.waiting) >= self.encode_size:
                    self.encode()
        self.files += is_new and part.file is not None
        self.is_cut_short |= part.is_cut_short
        if self.prune is not None and part.file is None:
            self.kept.update(document.id for document in part.documents)
        self.outdated += [
            i
            for i, fingerprint in known.items()
            if i not in stays and (self.replace or fingerprint not in ("", part.fingerprint))
        ]
        self.progress(1, 0)

    def encode(self) -> None:
        """Encode the documents that are waiting; commit if there are enough."""
        if not self.replace:
            # One request for all, because the index may be in a database.
            records = {i: d for i, (d, _) in self.waiting.items() if not d.fingerprint}
            for i, held in self.index.known(records).items():
                if held in (records[i], Document(i)):  # or added without a text
                    del self.waiting[i]
                    self.unchanged += 1
        if self.waiting:
            contents = [content for _, content in self.waiting.values()]
            embeddings = self.index.encoder.encode_documents(
                contents, lambda documents: self.progress(0, documents)
            )
            for (document, _), embedding in zip(self.waiting.values(), embeddings, strict=True):
                self.encoded[document.id] = (document, embedding)
            self.waiting.clear()
        if len(self.encoded) >= self.commit_size:
            self.commit()

    def commit(self) -> None:
        documents = [document for document, _ in self.encoded.values()]
        embeddings = [embedding for _, embedding in self.encoded.values()]
        self.added += self.index.add_encoded(documents, embeddings)
        self.records += sum(document.file is None for document in documents)
        self.encoded.clear()

    def finish(self) -> Update:
        self.encode()
        self.commit()
        is_pruned = self.prune is None or not self.is_cut_short
        gone = [*self.outdated, *self.others()]
        if gone:
            self.index.remove(gone)
        return Update(self.added, self.unchanged, len(gone), self.files, self.records, is_pruned)

    def others(self) -> Iterator[DocumentId]:
        """Yield the ids of the documents that the source does not have."""
        if self.prune is None or self.index.index.is_overriding:
            return
        for file in self.index.catalogue.files():
            if file not in self.prune:
                yield from self.index.of_file(file)
        if not self.is_cut_short:
            yield from (i for i in self.index.records() if i not in self.kept)
