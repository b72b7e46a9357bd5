"""What both kinds of index share: the interface of PyLate's indexes, over a store of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from ..errors import UnknownDocumentError, check_positive
from ..scores.interface import RerankResult
from ..spectral.background import Queries, QueryFilter
from ..spectral.settings import check_query_options
from ..storage import DocumentId, Snapshot, Transaction
from ..storage.ids import checked_ids
from ..storage.manifest import Manifest
from ..vectors.encoder import QueryVectors
from .collection import CodecT, SettingsT
from .documents import SearchRequest, Subset, TokenBatches, progress_bar
from .inputs import document_batches, several
from .opened import OpenedIndex
from .query_encoder import QueryEncoder, collected

if TYPE_CHECKING:
    from .eigenli import EigenLIIndex
    from .single_vector import EigenLISVIndex

_TOKENS_AT_ONCE = 256


class DocumentIndex(OpenedIndex[SettingsT, CodecT]):
    """Changes and searches of an index, of either kind."""

    # The last filter, with the state and the options that it is for.
    _filter: tuple[Manifest, float, float, QueryFilter] | None = None

    # --- changing -----------------------------------------------------------------------------

    def add_documents(
        self,
        documents_ids: DocumentId | Iterable[DocumentId],
        documents_embeddings: Any,
        batch_size: int = 1024,
    ) -> Self:
        """Add documents; one whose id is already there is replaced.

        In files all of them become part of the index at once, when the last one is in: an error, or
        a process that is killed, leaves the index as it was. A database shows them as they arrive;
        if an upload is interrupted, adding the same documents again completes it.

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

        def batches(dim: int | None) -> TokenBatches:
            progress.total, found = document_batches(
                documents_ids, documents_embeddings, batch_size, dim, self.device
            )
            return found

        with progress_bar(self.show_progress) as progress:
            self._documents.add(batches, progress)
        return self

    @contextmanager
    def accompanied(self, companion: Callable[[Transaction], None]) -> Iterator[None]:
        """Call a function just before changes of documents within the block are committed.

        Parameters
        ----------
        companion
            Called with the transaction, while nobody else can write. If it raises, nothing is
            committed. A database has no commits, and refuses a companion.
        """
        if self.in_database:
            raise ValueError(
                "a database shows documents as they arrive: there is no commit to accompany"
            )
        self._collection.companion = companion
        try:
            yield
        finally:
            self._collection.companion = None

    def update_documents(
        self, documents_ids: DocumentId | Iterable[DocumentId], documents_embeddings: Any
    ) -> Self:
        """Replace documents; ids that are not there yet are added, as PyLate's PLAID does."""
        return self.add_documents(documents_ids, documents_embeddings)

    def remove_documents(self, documents_ids: DocumentId | Iterable[DocumentId]) -> Self:
        """Remove documents. An unknown id raises an error, and nothing is removed."""
        self._documents.remove(checked_ids(several(documents_ids)))
        return self

    def fit_queries(self, queries_embeddings: Any) -> Self:
        """Learn the statistics of queries from a sample of them, without any judgements.

        A standardised index (``standardise=True``, ``preset="plus"``) subtracts the mean query
        token from queries, and the score that a document has for any query from its scores. Both
        are learnt here; some hundred queries suffice, and more can be added at any time. Documents
        do not change. Without a sample the index estimates the mean from each query alone.

        Parameters
        ----------
        queries_embeddings
            Token embeddings of queries, as for a search.
        """
        with self._collection.store.transaction() as transaction:
            base = transaction.base
            dim = self._collection.dim(base)
            if not self._collection.settings(base).standardise:
                raise ValueError(
                    "only a standardised index learns from queries: make it with "
                    'standardise=True or preset="plus"'
                )
            if dim is None:
                raise ValueError("the index holds no documents: add some, then call fit_queries")
            codec = self._collection.codec(base)  # refuses a forged dimension
            tokens = collected(queries_embeddings, dim)
            self._collection.keep(transaction, codec.with_queries(tokens))
        return self

    @property
    def knows_queries(self) -> bool:
        """Whether :meth:`fit_queries` has learnt the statistics of queries."""
        state = self._snapshot
        standardise = self._collection.codec(state).subspaces.transforms.standardise
        return standardise is not None and standardise.of_queries is not None

    def convert(
        self,
        path: str | Path,
        *,
        override: bool = False,
        show_progress: bool = False,
        **settings: Any,
    ) -> EigenLIIndex | EigenLISVIndex:
        """Make another index of the same documents in the folder ``path``, without any model.

        This index stays as it is. The new one appears as a whole; in a database documents appear as
        they arrive, and the same call completes an upload that was interrupted.

        Precision is as good as what is kept of the documents: tokens allow any settings. Bases, and
        an :class:`pylate_eigenli.EigenLIIndex`, allow any precision, backend and projection of the
        same subspaces, and vectors any other precision and backend. An error says what is missing.

        Parameters
        ----------
        path
            The folder of the new index.
        override
            Whether to replace an index that is there.
        show_progress
            Whether to show a progress bar.
        settings
            Options of :func:`pylate_eigenli.indexes.open_index.open_index` that are to be others.

        Examples
        --------
        >>> import tempfile
        >>> import torch
        >>> from pylate_eigenli import EigenLIIndex
        >>> folder = tempfile.mkdtemp()
        >>> index = EigenLIIndex(folder, k=2, show_progress=False)
        >>> index = index.add_documents(["first", "second"], torch.eye(8).reshape(2, 4, 8))
        >>> small = index.convert(f"{folder}/small", dtype="binary")
        >>> type(small).__name__, small(torch.eye(8)[4:], k=1)[0][0]["id"]
        ('EigenLISVIndex', 'second')
        """
        from .conversion import copy_documents, new_settings
        from .open_index import open_index

        options = new_settings(self, path, override, settings)
        target = open_index(path, override=override, show_progress=show_progress, **options)
        copy_documents(self, target)
        return target

    # --- searching ----------------------------------------------------------------------------

    def __call__(
        self,
        queries_embeddings: Any,
        k: int = 10,
        subset: Subset = None,
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
        return self._search(queries_embeddings, k, subset, idf, background)

    def _search(
        self,
        queries_embeddings: Any,
        k: int,
        subset: Subset,
        idf: float | None,
        background: float | None,
        **options: Any,
    ) -> list[list[RerankResult]]:
        check_positive(k=k)
        state = self._snapshot
        queries = self._queries(state, queries_embeddings, idf, background)
        request = self._request(state, queries, int(k), **options)
        return [
            [
                RerankResult(id=document_id, score=score)
                for document_id, score in zip(ids, scores.tolist(), strict=True)
            ]
            for ids, scores in self._documents.search(state, request, subset)
        ]

    def _request(self, state: Snapshot, queries: Queries, k: int) -> SearchRequest:
        return SearchRequest(queries, k)

    def highest_scores(
        self, queries_embeddings: Any, rerank: str | None = None
    ) -> NDArray[np.float64]:
        """Return the highest score that any document could have for each query.

        A score divided by it is the share of the query that the document explains: 1 for all of it;
        0, with background subtraction, for no more than a document explains of any query. Less is
        below 0. Codes and projections round scores, so a share can exceed 1 a little.

        Parameters
        ----------
        queries_embeddings
            As for a search.
        rerank
            As for :class:`pylate_eigenli.EigenLISVIndex`. MaxSim is highest where every token of
            the query is a token of the document.

        Returns
        -------
        Shape: (queries,).
        """
        queries = self._queries(self._snapshot, queries_embeddings, None, None)
        if (rerank or getattr(self, "rerank", "none")) == "maxsim":
            return np.array([float(query.double().norm(dim=1).sum()) for query in queries.plain])
        return queries.highest_scores()

    def contributions(
        self,
        query_embeddings: Any,
        documents_ids: Sequence[DocumentId],
        idf: float | None = None,
        background: float | None = None,
        **request: Any,
    ) -> NDArray[np.float32]:
        """Return the contribution of every token of a query to the scores of documents.

        Parameters
        ----------
        query_embeddings
            Shape: (tokens, d).
        documents_ids
            Ids of documents.
        idf, background
            As for a search.
        request
            Further options of the search.

        Returns
        -------
        Shape: (documents, tokens), float32. Rows add up to the scores.
        """
        ids, state = checked_ids(documents_ids), self._snapshot
        unknown = self._documents.missing(state, ids)
        if unknown:
            raise UnknownDocumentError(f"no document {unknown[0]!r} in the index")
        query = self._queries(state, [query_embeddings], idf, background)
        result = np.zeros((len(ids), len(query.plain.tokens)), np.float32)
        row_of = {document_id: row for row, document_id in enumerate(ids)}
        # Some at a time: as a query of its own, each token becomes a vector of D numbers.
        for begin in range(0, result.shape[1] if ids else 0, _TOKENS_AT_ONCE):
            alone = query.alone(slice(begin, begin + _TOKENS_AT_ONCE))
            asked = self._request(state, alone, len(ids), **request)
            for token, hits in enumerate(self._documents.search(state, asked, ids), begin):
                result[[row_of[document_id] for document_id in hits.ids], token] = hits.scores
        return result

    def _queries(
        self,
        state: Snapshot,
        queries_embeddings: Any,
        idf: float | None,
        background: float | None,
    ) -> Queries:
        """Return queries, transformed and filtered for the documents of a state."""
        encoder = self._query_encoder(state, idf, background)
        return encoder.queries(collected(queries_embeddings, self._collection.dim(state)))

    def _query_encoder(
        self, state: Snapshot, idf: float | None, background: float | None
    ) -> QueryEncoder:
        """Return the query encoder of a state."""
        settings, dim = self._collection.settings(state), self._collection.dim(state)
        codec = self._collection.codec(state)  # refuses an index of other dimensions than it says
        idf = settings.idf if idf is None else idf
        share = settings.background if background is None else background
        check_query_options(idf, share)
        transforms = codec.subspaces.transforms
        if dim is None:
            return QueryEncoder(0, transforms, QueryFilter())
        chosen = QueryFilter() if not idf and not share else self._query_filter(state, idf, share)
        return QueryEncoder(dim, transforms, chosen, codec.encoder.projection)

    def _query_filter(self, state: Snapshot, idf: float, share: float) -> QueryFilter:
        known = self._filter
        if known is None or known[0] is not state.manifest or known[1:3] != (idf, share):
            standardise = self._collection.codec(state).subspaces.transforms.standardise
            if standardise is None or idf:
                background = self._documents.background(state)
            else:  # of queries, not of documents
                background = standardise.expected_query
            chosen = QueryFilter()
            if background is not None:
                by_evidence = standardise is not None
                chosen = background.query_filter(idf, share, by_evidence)
            known = self._filter = (state.manifest, idf, share, chosen)
        return known[3]

    def query_encoder(
        self, idf: float | None = None, background: float | None = None
    ) -> QueryEncoder:
        """Return what makes vectors of queries, also without the index.

        Parameters
        ----------
        idf, background
            As for a search.
        """
        state = self._snapshot
        if self._collection.dim(state) is None:
            raise ValueError(f"the index {self.index_name!r} holds no documents")
        return self._query_encoder(state, idf, background)

    def encode_queries(
        self, queries_embeddings: Any, idf: float | None = None, background: float | None = None
    ) -> QueryVectors:
        """Return the single vectors of queries, to be multiplied with those of :meth:`vectors`.

        Parameters
        ----------
        queries_embeddings, idf, background
            As for a search.

        Returns
        -------
        ``vectors`` of shape (queries, D), and ``constants`` of shape (queries,): the score of a
        document is the inner product of both vectors plus the constant of the query. Constants are
        zero unless the index has a projection, which drops the mean of all documents.
        """
        return self.query_encoder(idf, background)(queries_embeddings)
