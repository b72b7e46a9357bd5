"""Updates: an index follows a source, in commits that survive an interruption."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
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


def _ignore(_parts: int, _documents: int) -> None:
    pass


@dataclass(frozen=True)
class Update:
    """Numbers of documents that an update has added, left unchanged and removed.

    ``files`` is the number of files that passages or pages were added from.

    Examples
    --------
    >>> Update(added=3, unchanged=2, removed=1).added
    3
    """

    added: int = 0
    unchanged: int = 0
    removed: int = 0
    files: int = 0


def update(
    index: CorpusIndex,
    parts: Iterable[Part],
    *,
    commit_size: int,
    encode_size: int | None = None,
    replace: bool = False,
    progress: Progress = _ignore,
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
    progress
        Called with the numbers of parts and of documents done since the last call.
    """
    state = _Update(index, commit_size, encode_size or commit_size, replace, progress)
    for part in parts:
        state.take(part)
    return state.finish()


def prune(index: CorpusIndex, files: Container[str]) -> int:
    """Remove the documents of all files but these; return their number."""
    gone = [i for file in index.catalogue.files() if file not in files for i in index.of_file(file)]
    if gone:
        index.remove(gone)
    return len(gone)


@dataclass
class _Update:
    index: CorpusIndex
    commit_size: int
    encode_size: int
    replace: bool
    progress: Progress
    added: int = 0
    unchanged: int = 0
    files: int = 0
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
        self.encoded.clear()

    def finish(self) -> Update:
        self.encode()
        self.commit()
        if self.outdated:
            self.index.remove(self.outdated)
        return Update(self.added, self.unchanged, len(self.outdated), self.files)
