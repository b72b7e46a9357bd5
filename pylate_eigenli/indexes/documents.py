"""Where an index keeps its documents: one interface for files and for vector databases."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from ..spectral.background import Background, Queries
from ..storage import DocumentId, Snapshot
from ..storage.batch import Batch
from ..tokens import TokenBatch
from .codecs import Codec
from .rerank import Reranker
from .results import Found

Subset: TypeAlias = Sequence[Sequence[DocumentId]] | Sequence[DocumentId] | None
# For each query the sorted global rows of living documents to choose from; None for all documents.
Allowed: TypeAlias = Sequence[NDArray[np.int64]] | None
TokenBatches: TypeAlias = Iterable[tuple[list[DocumentId], TokenBatch]]
Progress: TypeAlias = "tqdm[NoReturn]"


@dataclass(frozen=True)
class SearchRequest:
    """A search for the best k documents per query.

    ``n_candidates`` are asked of an ANN structure, unless the search is ``exact`` and looks at all
    documents, and are scored by the reranker, if there is one.
    """

    queries: Queries
    k: int
    reranker: Reranker | None = None
    n_candidates: int = 0
    exact: bool = False

    @property
    def depth(self) -> int:
        """Number of documents to find before they are re-ranked."""
        return self.k if self.reranker is None else max(self.k, self.n_candidates)


class DocumentStore(Protocol):
    """Documents of an index: in files (:class:`pylate_eigenli.indexes.local_documents.LocalDocuments`)
    or in a database (:class:`pylate_eigenli.indexes.databases.documents.DatabaseDocuments`).

    A state is a snapshot of the index's folder. Files show the documents of that state; a database
    shows those that it holds now.
    """

    @property
    def in_database(self) -> bool:
        """Whether a vector database holds the documents."""

    @property
    def thread_safe(self) -> bool:
        """Whether threads may use the documents at the same time."""

    def count(self, state: Snapshot) -> int:
        """Return the number of documents."""

    def nbytes(self, state: Snapshot) -> int:
        """Return the bytes on disk, removed documents that still take space included."""

    def missing(self, state: Snapshot, ids: list[DocumentId]) -> list[DocumentId]:
        """Return the ids that are not there, in their order."""

    def add(self, batches: Callable[[int | None], TokenBatches], progress: Progress) -> None:
        """Add documents, or replace those of the same ids.

        ``batches`` gets the dimension that tokens must have, None for any, and returns the
        documents.
        """

    def transfer(
        self,
        dim: int,
        codec: Codec,
        batches: Callable[[Codec], Iterable[Batch]],
        progress: Progress,
    ) -> None:
        """Fill an empty index with documents that are columns already.

        ``dim`` is the dimension of their tokens; ``batches`` gets the codec, or that of a transfer
        to a database that was interrupted before.
        """

    def remove(self, ids: list[DocumentId]) -> None:
        """Remove documents; an id that is not there is an error, and none is removed."""

    def background(self, state: Snapshot) -> Background | None:
        """Return the background; None if there never were any documents."""

    def search(self, state: Snapshot, request: SearchRequest, subset: Subset) -> Iterable[Found]:
        """Find the documents with the highest scores for each query."""

    def kept(self, state: Snapshot, ids: list[DocumentId]) -> list[NDArray[np.float32]]:
        """Return the tokens, or else the bases, that are kept of documents."""

    def columns(
        self, state: Snapshot, ids: list[DocumentId] | None, batch_size: int, kept: bool
    ) -> Iterator[Batch]:
        """Yield documents, by default all in the order of insertion, in batches.

        With ``kept`` they have all their columns, otherwise at least those of their vectors.
        """

    def build(self) -> None:
        """Bring the ANN structure up to date with all documents."""

    def compact(self) -> None:
        """Give the space of removed and replaced documents back to the disk."""

    def close(self) -> None:
        """Free memory and close connections."""


def progress_bar(shown: bool, total: int | None = None) -> Progress:
    """Return a bar that counts documents."""
    return tqdm(total=total, desc="Adding documents", unit="doc", disable=not shown)


@contextmanager
def after_commit(path: Path, task: str, remedy: str) -> Iterator[None]:
    """Turn an error into a warning: an error would say that the documents are not committed."""
    try:
        yield
    except Exception as error:
        message = f"the documents are in {path}, but {task} failed ({error}); {remedy}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
