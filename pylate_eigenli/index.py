"""EigenLIIndex: a PyLate index that keeps one small subspace per document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pylate.indexes.base import Base
from pylate.rank import RerankResult
from tqdm.auto import tqdm

from .codec import DTYPES, BasisDtype, decode_documents, encode
from .errors import IndexFormatError, UnknownDocumentError
from .search import ExactSearch
from .storage import DocumentId, Snapshot, Store
from .subspace import ShortDocuments, check_k, subspaces_of
from .tokens import collect, split_items

_KIND = "eigenli"
_DEFAULT_MEMORY = 1 << 30


@dataclass(frozen=True)
class Settings:
    """What an index is made with; kept in its manifest and fixed from the first document on."""

    k: int = 32
    dtype: BasisDtype = "float16"
    short_documents: ShortDocuments = "fill"

    def __post_init__(self) -> None:
        check_k(self.k, None)
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")
        if self.short_documents not in ("fill", "truncate"):
            raise ValueError(
                f'short_documents must be "fill" or "truncate", got {self.short_documents!r}'
            )


@dataclass(frozen=True)
class IndexStats:
    """Size and shape of an index.

    Parameters
    ----------
    documents
        Number of documents.
    dim
        Dimension d of the token vectors, 0 while the index is empty.
    bytes_on_disk
        Size of all files, removed documents that still take space included.
    bytes_per_document
        ``bytes_on_disk / documents``.
    ranks
        Number of documents by number of directions, ascending.
    """

    documents: int
    dim: int
    bytes_on_disk: int
    bytes_per_document: float
    ranks: dict[int, int]


class EigenLIIndex(Base):
    """Index of document subspaces, searched exactly; takes the place of ``pylate.indexes.PLAID``.

    A document's token vectors are replaced by the k leading eigenvectors of their second moment.
    A query scores how much of its tokens lies in that subspace. There is nothing to train: a
    document is compressed on its own, so adding, replacing and removing are cheap and exact.

    Any number of processes can read an index while one writes it. Every change is atomic: a
    process that is killed leaves the index as it was before the change or as it is after it.

    Parameters
    ----------
    index_folder
        The folder where indexes are stored.
    index_name
        The name of this index, a folder inside ``index_folder``.
    override
        Whether to empty the index if it already exists.
    k
        Number of directions kept per document, at most d. By default 32; an index that exists
        keeps its own, and asking it for another one is an error.
    dtype
        How the directions are stored: ``"float32"``, ``"float16"`` (the default) or ``"int8"``.
        An index that exists keeps its own.
    short_documents
        What a document of rank r < k gets for the directions it lacks: ``"fill"`` (the default)
        credits their expected share of a query, ``"truncate"`` nothing. An index that exists
        keeps its own.
    device
        Where to compute, ``"cpu"`` or ``"cuda"``. By default where the embeddings are given.
    show_progress
        Whether to show a progress bar while documents are added.
    memory_limit
        Bytes of memory that searching may use to speed up the scan; d (d + 1) / 2 bytes per
        document, 8 KB for d = 128, are used while they last. Documents beyond are searched too,
        only slower.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> index = EigenLIIndex(index_folder=tempfile.mkdtemp(), k=2, show_progress=False)
    >>> documents = torch.nn.functional.normalize(torch.eye(8).reshape(2, 4, 8), dim=-1)
    >>> index = index.add_documents(["first", "second"], documents)
    >>> results = index(documents[1], k=1)
    >>> results[0][0]["id"]
    'second'
    >>> len(index), "first" in index
    (2, True)
    """

    is_end_to_end_index = True

    def __init__(
        self,
        index_folder: str = "indexes",
        index_name: str = "eigenli",
        override: bool = False,
        k: int | None = None,
        dtype: BasisDtype | None = None,
        short_documents: ShortDocuments | None = None,
        device: str | None = None,
        show_progress: bool = True,
        memory_limit: int = _DEFAULT_MEMORY,
    ) -> None:
        wanted = {"k": k, "dtype": dtype, "short_documents": short_documents}
        self._wanted = {name: value for name, value in wanted.items() if value is not None}
        Settings(**self._wanted)  # type: ignore[arg-type]  # refuses bad values before anything else
        if memory_limit < 0:
            raise ValueError(f"memory_limit must not be negative, got {memory_limit}")
        self.index_folder = index_folder
        self.index_name = index_name
        self.device = device
        self.show_progress = show_progress
        self._store: Store | None = Store(Path(index_folder) / index_name)
        self._search = ExactSearch(device or "cpu", memory_limit)
        if override:
            with self._store.transaction(override=True):
                pass
        self._settings_of(self._snapshot)

    # --- settings and state -------------------------------------------------------------------

    @property
    def _open_store(self) -> Store:
        if self._store is None:
            raise ValueError(f"the index {self.index_name!r} is closed")
        return self._store

    @property
    def _snapshot(self) -> Snapshot:
        return self._open_store.snapshot

    def _settings_of(self, snapshot: Snapshot) -> tuple[Settings, int | None]:
        """Return the settings and dimension of a state; those asked for if it has none yet."""
        meta = snapshot.meta
        if not meta:
            return Settings(**self._wanted), None  # type: ignore[arg-type]
        where = f"{self.index_folder}/{self.index_name}"
        if meta.get("kind") != _KIND:
            raise IndexFormatError(
                f"{where} holds an index of kind {meta.get('kind')!r}, not {_KIND!r}"
            )
        try:
            settings, dim = Settings(**meta["settings"]), int(meta["dim"])
        except (KeyError, TypeError, ValueError) as error:
            raise IndexFormatError(f"the settings of {where} cannot be read: {error}") from error
        for name, value in self._wanted.items():
            if getattr(settings, name) != value:
                raise ValueError(
                    f"{where} was made with {name}={getattr(settings, name)!r}, not {value!r}; "
                    f"leave {name} out to use it as it is, or pass override=True to start again"
                )
        return settings, dim

    @property
    def k(self) -> int:
        """Number of directions kept per document."""
        return self._settings_of(self._snapshot)[0].k

    @property
    def dtype(self) -> BasisDtype:
        """How the directions are stored."""
        return self._settings_of(self._snapshot)[0].dtype

    def __len__(self) -> int:
        return len(self._snapshot)

    def __contains__(self, document_id: object) -> bool:
        return document_id in self._snapshot

    def stats(self) -> IndexStats:
        """Return the number of documents, their size on disk and a histogram of their ranks."""
        snapshot = self._snapshot
        ranks: Counter[int] = Counter()
        for segment in snapshot.segments:
            ranks.update(np.diff(segment.offsets)[segment.alive].tolist())
        documents = len(snapshot)
        return IndexStats(
            documents=documents,
            dim=self._settings_of(snapshot)[1] or 0,
            bytes_on_disk=snapshot.nbytes,
            bytes_per_document=snapshot.nbytes / documents if documents else 0.0,
            ranks=dict(sorted(ranks.items())),
        )

    def refresh(self) -> bool:
        """Move on to what other processes have committed since; return whether anything changed."""
        return self._open_store.refresh()

    def compact(self) -> EigenLIIndex:
        """Give the space of removed and replaced documents back to the disk."""
        self._open_store.compact()
        return self

    def close(self) -> None:
        """Let go of the files and of the memory used for searching."""
        self._search.clear()
        if self._store is not None:
            self._store.close()
            self._store = None

    def __enter__(self) -> EigenLIIndex:
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
    ) -> EigenLIIndex:
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
        if batch_size < 1:
            raise ValueError(f"batch_size must be positive, got {batch_size}")
        ids = [documents_ids] if isinstance(documents_ids, (str, int)) else documents_ids
        embeddings = split_items(documents_embeddings)
        total = _common_length(ids, embeddings)
        with (
            self._open_store.transaction() as transaction,
            tqdm(
                total=total,
                desc="Adding documents",
                unit="doc",
                disable=not self.show_progress,
            ) as progress,
        ):
            settings, dim = self._settings_of(transaction.base)
            pairs = _pairs(iter(ids), iter(embeddings))
            while batch := list(islice(pairs, batch_size)):
                batch_ids = [document_id for document_id, _ in batch]
                tokens = collect(
                    [tokens for _, tokens in batch],
                    dim=dim,
                    device=self.device,
                    names=[f"document {document_id!r}" for document_id in batch_ids],
                )
                dim = tokens.dim
                subspaces = subspaces_of(tokens, settings.k, settings.short_documents)
                documents, rows = encode(subspaces, settings.dtype)
                transaction.append(
                    batch_ids, documents=documents, rows=rows, lengths=subspaces.ranks
                )
                progress.update(len(batch))
            if dim is None:
                raise ValueError("no documents were given")
            transaction.meta.update(kind=_KIND, settings=asdict(settings), dim=dim)
        return self

    def update_documents(
        self, documents_ids: DocumentId | Iterable[DocumentId], documents_embeddings: Any
    ) -> EigenLIIndex:
        """Replace documents; ids that are not there yet are added, as PyLate's PLAID does."""
        return self.add_documents(documents_ids, documents_embeddings)

    def remove_documents(  # type: ignore[override]
        self, documents_ids: DocumentId | Iterable[DocumentId]
    ) -> EigenLIIndex:
        """Remove documents. An id that the index does not hold is an error and removes nothing."""
        ids = [documents_ids] if isinstance(documents_ids, (str, int)) else list(documents_ids)
        with self._open_store.transaction() as transaction:
            self._settings_of(transaction.base)
            transaction.remove(ids)
        return self

    # --- reading ------------------------------------------------------------------------------

    def __call__(
        self,
        queries_embeddings: Any,
        k: int = 10,
        subset: Sequence[Sequence[DocumentId]] | Sequence[DocumentId] | None = None,
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

        Returns
        -------
        For each query a list of results with ``id`` and ``score``, best first; of equal ones the
        one added first.
        """
        if not isinstance(k, (int, np.integer)) or k < 1:
            raise ValueError(f"k must be a positive integer, got {k!r}")
        snapshot = self._snapshot
        _, dim = self._settings_of(snapshot)
        queries = collect(queries_embeddings, dim=dim, device="cpu", names="query")
        allowed = _allowed_rows(snapshot, subset, len(queries))
        hits = self._search.search(snapshot, queries, int(k), allowed)
        return [
            [
                RerankResult(id=document_id, score=score)
                for document_id, score in zip(snapshot.ids_of(rows), scores.tolist(), strict=True)
            ]
            for rows, scores in hits
        ]

    def get_documents_embeddings(  # type: ignore[override]
        self, documents_ids: Sequence[Sequence[DocumentId]]
    ) -> list[list[NDArray[np.float32]]]:
        """Return the bases of documents, in the structure of the ids.

        Parameters
        ----------
        documents_ids
            Lists of ids, for instance the candidates of several queries.

        Returns
        -------
        For each id its orthonormal basis. Shape: (rank, d), float32.
        """
        if any(isinstance(ids, (str, int)) for ids in documents_ids):
            raise TypeError("documents_ids must be a list of lists of ids")
        snapshot = self._snapshot
        return [self._bases(snapshot, list(ids)) for ids in documents_ids]

    @staticmethod
    def _bases(snapshot: Snapshot, ids: list[DocumentId]) -> list[NDArray[np.float32]]:
        rows = snapshot.locate(ids)
        if (rows < 0).any():
            raise UnknownDocumentError(f"no document {ids[int(np.argmin(rows))]!r} in the index")
        bases: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(ids)
        for segment, local, positions in snapshot.by_segment(rows):
            matrices, ranks = decode_documents(segment, local)
            for position, basis in zip(
                positions, torch.split(matrices, ranks.tolist()), strict=True
            ):
                bases[position] = basis.numpy()
        return bases


def _common_length(ids: Iterable[Any], embeddings: Iterable[Any]) -> int | None:
    """Return the number of documents where it can be known; refuse two that differ."""
    lengths = [len(x) if isinstance(x, Sized) else None for x in (ids, embeddings)]
    if None not in lengths and lengths[0] != lengths[1]:
        raise ValueError(f"{lengths[0]} documents_ids for {lengths[1]} documents_embeddings")
    return next((length for length in lengths if length is not None), None)


def _pairs(
    ids: Iterator[DocumentId], embeddings: Iterator[Any]
) -> Iterator[tuple[DocumentId, Any]]:
    """Pair ids with embeddings; refuse a different number of both, also of generators."""
    try:
        yield from zip(ids, embeddings, strict=True)
    except ValueError as error:
        if "zip()" not in str(error):
            raise
        raise ValueError("documents_ids and documents_embeddings differ in number") from error


def _allowed_rows(
    snapshot: Snapshot,
    subset: Sequence[Sequence[DocumentId]] | Sequence[DocumentId] | None,
    n_queries: int,
) -> list[NDArray[np.int64] | None] | None:
    """Translate a subset to sorted global rows per query."""
    if subset is None:
        return None
    per_query = len(subset) > 0 and not isinstance(subset[0], (str, int, np.integer))
    if per_query and len(subset) != n_queries:
        raise ValueError(f"subset has {len(subset)} lists for {n_queries} queries")
    groups: Any = subset if per_query else [subset]
    rows: list[NDArray[np.int64] | None] = []
    for ids in groups:
        located = snapshot.locate(ids)
        rows.append(np.unique(located[located >= 0]))
    return rows if per_query else rows * n_queries
