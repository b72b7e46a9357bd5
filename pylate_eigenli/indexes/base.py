"""What every index of this library shares: settings, transactions and the background.

A concrete index says what a batch of documents is stored as and how queries find documents.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, NoReturn, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pylate.indexes.base import Base
from pylate.rank import RerankResult
from tqdm.auto import tqdm
from typing_extensions import Self

from ..spectral.background import Background, Queries, QueryFilter
from ..errors import IndexFormatError
from .inputs import allowed_rows, checked_k, document_batches, several
from .exact_search import Hits
from ..spectral.settings import check_query_options
from ..storage import DocumentId, Segment, Snapshot, Store, Transaction
from ..storage.ids import checked_ids
from ..storage.manifest import Manifest
from ..tokens import TokenBatch, collect

SettingsT = TypeVar("SettingsT", bound=Any)
# For each query the sorted global rows to choose from, or None for all; None if that holds for all.
Allowed: TypeAlias = Sequence[NDArray[np.int64] | None] | None
Find: TypeAlias = Callable[[Snapshot, Queries, int, Allowed], Iterable[Hits]]


class DocumentIndex(Base, Generic[SettingsT]):
    """A PyLate index in a folder of crash-safe files.

    Parameters
    ----------
    index_folder
        The folder where indexes are stored.
    index_name
        The name of this index, a folder inside ``index_folder``.
    override
        Whether to empty the index if it already exists.
    settings
        What the index is to be made with, by name; None for what is left to the default. An index
        that exists keeps its own.
    device
        Where documents are compressed. By default where their embeddings are.
    show_progress
        Whether to show a progress bar while documents are added.
    """

    is_end_to_end_index = True
    kind: ClassVar[str]
    settings_type: type[SettingsT]

    def __init__(
        self,
        index_folder: str,
        index_name: str,
        override: bool,
        settings: Mapping[str, Any],
        device: str | None,
        show_progress: bool,
    ) -> None:
        self._wanted = {name: value for name, value in settings.items() if value is not None}
        self.settings_type(**self._wanted)  # refuses bad values before anything is touched
        self.index_folder = index_folder
        self.index_name = index_name
        self.device = device
        self.show_progress = show_progress
        # What was computed last, and of which state.
        self._filter: tuple[Manifest, float, float, QueryFilter] | None = None
        self._companion: Callable[[int], None] | None = None
        self._store: Store | None = Store(Path(index_folder) / index_name)
        if override:
            with self._store.transaction(override=True):
                pass
        self._settings_of(self._snapshot)

    # --- what a concrete index adds -----------------------------------------------------------

    @abstractmethod
    def _append(
        self, transaction: Transaction, ids: list[DocumentId], tokens: TokenBatch
    ) -> NDArray[np.float64]:
        """Compress a batch of documents, append it, and return the sum of their matrices (d, d)."""

    @abstractmethod
    def _matrix_sum(
        self, snapshot: Snapshot, segment: Segment, documents: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the sum of the matrices of stored documents (d, d), as :meth:`_append` had it."""

    def _comparable(self, snapshot: Snapshot, queries: TokenBatch) -> TokenBatch:
        """Return the tokens that are compared with subspaces."""
        return self._settings_of(snapshot)[0].centred_queries(queries)  # type: ignore[no-any-return]

    @abstractmethod
    def _find(
        self,
        snapshot: Snapshot,
        queries: Queries,
        k: int,
        allowed: Allowed,
    ) -> Iterable[Hits]:
        """Return the best documents of every query, of those allowed."""

    def _changed(self) -> None:
        """React to a change of the documents that has just been committed."""

    # --- settings and state -------------------------------------------------------------------

    @property
    def _open_store(self) -> Store:
        if self._store is None:
            raise ValueError(f"the index {self.index_name!r} is closed")
        return self._store

    @property
    def _snapshot(self) -> Snapshot:
        return self._open_store.snapshot

    def _settings_of(self, snapshot: Snapshot) -> tuple[SettingsT, int | None]:
        """Return the settings and dimension of a state; those asked for if it has none yet."""
        meta = snapshot.meta
        if not meta:
            return self.settings_type(**self._wanted), None
        where = Path(self.index_folder) / self.index_name
        if meta.get("kind") != self.kind:
            raise IndexFormatError(
                f"{where} holds an index of kind {meta.get('kind')!r}, not {self.kind!r}"
            )
        try:
            settings, dim = self.settings_type(**meta["settings"]), int(meta["dim"])
        except (KeyError, TypeError, ValueError) as error:
            raise IndexFormatError(f"the settings of {where} cannot be read: {error}") from error
        return settings.opened_with(self._wanted, where), dim

    @property
    def settings(self) -> SettingsT:
        """What the index is made with."""
        return self._settings_of(self._snapshot)[0]

    @property
    def dim(self) -> int | None:
        """Dimension of the token vectors, None before the first document."""
        return self._settings_of(self._snapshot)[1]

    @property
    def generation(self) -> int:
        """Number of the change that made the state this index shows; 0 before the first one."""
        return self._snapshot.generation

    @property
    def nbytes(self) -> int:
        """Bytes on disk, removed documents that still take space included."""
        return self._snapshot.nbytes

    def __len__(self) -> int:
        return len(self._snapshot)

    def __contains__(self, document_id: object) -> bool:
        return document_id in self._snapshot

    def missing(self, documents_ids: Iterable[DocumentId]) -> list[DocumentId]:
        """Return the ids that the index does not hold."""
        ids = checked_ids(documents_ids)
        rows = self._snapshot.locate(ids)
        return [document_id for document_id, row in zip(ids, rows, strict=True) if row < 0]

    def refresh(self) -> bool:
        """Move on to what other processes have committed since; return whether anything changed."""
        return self._open_store.refresh()

    def compact(self) -> Self:
        """Give the space of removed and replaced documents back to the disk."""
        self._open_store.compact()
        return self

    def close(self) -> None:
        """Let go of the files and of the memory used for searching."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "an open index can be neither pickled nor copied: open it by its folder and name instead"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- changing -----------------------------------------------------------------------------

    # PyLate's own indexes return themselves too, whatever their base class says.
    def add_documents(  # type: ignore[override]
        self,
        documents_ids: DocumentId | Iterable[DocumentId],
        documents_embeddings: Any,
        batch_size: int = 1024,
    ) -> Self:
        """Add documents; one whose id is already there is replaced.

        All of them become part of the index at once, when the last one is in: an error, or a
        process that is killed, leaves the index as it was.

        Parameters
        ----------
        documents_ids
            An id per document, strings or integers. Any iterable, also a generator.
        documents_embeddings
            The token embeddings of each document: an iterable (also a generator) of (tokens, d)
            arrays, tensors or nested lists, or a zero-padded 3-D batch.
        batch_size
            Number of documents that are compressed at a time.
        """
        with self._open_store.transaction() as transaction:
            settings, dim = self._settings_of(transaction.base)
            background = self._background(transaction.base)
            total, batches = document_batches(
                documents_ids, documents_embeddings, batch_size, dim, self.device
            )
            with self._progress(total) as progress:
                for ids, tokens in batches:
                    if dim is None:
                        transaction.meta.update(
                            kind=self.kind, settings=asdict(settings), dim=tokens.dim
                        )
                    replaced = self._matrices_of(transaction.base, ids)
                    matrices = self._append(transaction, ids, tokens)
                    background = background or Background.empty(len(matrices))
                    background = background.minus(*replaced).plus(matrices, len(ids))
                    progress.update(len(ids))
            assert background is not None  # there was a batch
            transaction.meta["background"] = background.to_json()
            self._about_to_commit(transaction)
        self._changed()
        return self

    @contextmanager
    def accompanied(self, companion: Callable[[int], None]) -> Iterator[None]:
        """Have changes within the block tell somebody just before they are committed.

        Parameters
        ----------
        companion
            Called with the number of the state that the commit makes, at a time when nobody else
            can write. If it raises, nothing is committed.
        """
        self._companion = companion
        try:
            yield
        finally:
            self._companion = None

    def _about_to_commit(self, transaction: Transaction) -> None:
        if self._companion is not None:
            self._companion(transaction.base.generation + 1)

    def _progress(self, total: int | None) -> tqdm[NoReturn]:
        return tqdm(
            total=total, desc="Adding documents", unit="doc", disable=not self.show_progress
        )

    def update_documents(
        self, documents_ids: DocumentId | Iterable[DocumentId], documents_embeddings: Any
    ) -> Self:
        """Replace documents; ids that are not there yet are added, as PyLate's PLAID does."""
        return self.add_documents(documents_ids, documents_embeddings)

    def remove_documents(  # type: ignore[override]
        self, documents_ids: DocumentId | Iterable[DocumentId]
    ) -> Self:
        """Remove documents. An id that the index does not hold is an error and removes nothing."""
        ids = list(several(documents_ids))
        with self._open_store.transaction() as transaction:
            self._settings_of(transaction.base)
            transaction.remove(ids)
            background = self._background(transaction.base)
            if background is not None:
                background = background.minus(*self._matrices_of(transaction.base, ids))
                transaction.meta["background"] = background.to_json()
            self._about_to_commit(transaction)
        self._changed()
        return self

    def _matrices_of(
        self, snapshot: Snapshot, ids: Sequence[DocumentId]
    ) -> tuple[NDArray[np.float64] | float, int]:
        """Return the sum of the matrices of those documents that are there, and their number."""
        rows = snapshot.locate(ids)
        rows = np.unique(rows[rows >= 0])
        parts = [
            self._matrix_sum(snapshot, segment, local)
            for segment, local, _ in snapshot.by_segment(rows)
        ]
        return sum(parts, 0.0), len(rows)

    def _background(self, snapshot: Snapshot) -> Background | None:
        """Return the background of a state, counted if it was made before there was one."""
        stored = snapshot.meta.get("background")
        if stored is not None:
            return Background.from_json(stored)
        background = None
        for segment in snapshot.segments:
            living = np.flatnonzero(segment.alive)
            for part in np.array_split(living, -(-len(living) // 1024) or 1):
                matrices = self._matrix_sum(snapshot, segment, part)
                background = background or Background.empty(len(matrices))
                background = background.plus(matrices, len(part))
        return background

    # --- reading ------------------------------------------------------------------------------

    def __call__(
        self,
        queries_embeddings: Any,
        k: int = 10,
        subset: Sequence[Sequence[DocumentId]] | Sequence[DocumentId] | None = None,
        idf: float | None = None,
        background: float | None = None,
    ) -> list[list[RerankResult]]:
        """Find the documents with the highest scores.

        Parameters
        ----------
        queries_embeddings
            A list of (tokens, d) arrays, tensors or nested lists, a zero-padded 3-D batch, or one
            2-D array for a single query.
        k
            Number of documents to return per query; fewer if there are not as many.
        subset
            Ids to restrict the search to: one list for all queries or one list per query. Ids
            that the index does not hold are ignored.
        idf
            Exponent of the spectral idf, which makes directions that many documents hold count
            less; 0 for none. By default what the index was made with.
        background
            Share of the background to subtract from queries, so that long documents do not win
            for being long; 0 for none. By default what the index was made with.
            See :mod:`pylate_eigenli.spectral.background`.

        Returns
        -------
        For each query a list of results with ``id`` and ``score``, best first; of equal ones the
        one added first.
        """
        return self._answer(self._find, queries_embeddings, k, subset, idf, background)

    def _answer(
        self,
        find: Find,
        queries_embeddings: Any,
        k: int,
        subset: Sequence[Sequence[DocumentId]] | Sequence[DocumentId] | None,
        idf: float | None,
        background: float | None,
    ) -> list[list[RerankResult]]:
        """Check and translate a search, let ``find`` do it, and translate its hits back."""
        k = checked_k(k)
        snapshot = self._snapshot
        queries = self._queries(snapshot, queries_embeddings, idf, background)
        allowed = allowed_rows(snapshot, subset, len(queries))
        return [
            [
                RerankResult(id=document_id, score=score)
                for document_id, score in zip(snapshot.ids_of(rows), scores.tolist(), strict=True)
            ]
            for rows, scores in find(snapshot, queries, k, allowed)
        ]

    def _queries(
        self,
        snapshot: Snapshot,
        queries_embeddings: Any,
        idf: float | None,
        background: float | None,
    ) -> Queries:
        """Return queries as they meet the documents of a state."""
        settings, dim = self._settings_of(snapshot)
        tokens = collect(queries_embeddings, dim=dim, device="cpu", names="query")
        idf = settings.idf if idf is None else idf
        share = settings.background if background is None else background
        check_query_options(idf, share)
        comparable = tokens if dim is None else self._comparable(snapshot, tokens)
        if not idf and not share:
            return Queries(tokens, comparable)
        return self._query_filter(snapshot, idf, share)(tokens, comparable)

    def _query_filter(self, snapshot: Snapshot, idf: float, share: float) -> QueryFilter:
        """Return what a state does to queries, computed once."""
        known = self._filter
        if known is None or known[0] is not snapshot.manifest or known[1:3] != (idf, share):
            background = self._background(snapshot)
            chosen = QueryFilter() if background is None else background.query_filter(idf, share)
            known = self._filter = (snapshot.manifest, idf, share, chosen)
        return known[3]
