"""EigenLISVIndex: a PyLate index of one vector per document, scanned or served by an ANN library."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pylate.rank import RerankResult

from .ann import accelerator
from . import (ann as backends, databases as servers, columns as vector_column)
from ..vectors import rows as codec
from ..spectral.background import Queries
from .base import Allowed, DocumentIndex
from ..spectral.filters import SpectralFilter
from .inputs import checked_k
from ..vectors.projection import SVProjection, TokenProjection
from .rerank import Rerank, TokensOf, check_rerank, rescore
from .exact_search import Hits
from ..spectral.settings import Centering, Preset, with_preset
from ..storage import DocumentId, Segment, Snapshot, Transaction
from ..storage.manifest import Manifest
from ..spectral.subspace import ShortDocuments
from ..vectors.encoder import KeepTokens, Projections, SVSettings
from ..tokens import TokenBatch
from .columns import VectorDtype


class EigenLISVIndex(DocumentIndex[SVSettings]):
    """Index of one vector per document whose inner product with a query's vector is its score.

    The vector packs the projector on the document's subspace (:mod:`pylate_eigenli.vectors.packing`), so
    that any single-vector machinery serves late interaction. Vectors are kept at the precision
    of ``dtype`` and scanned; with another ``backend`` an ANN structure finds the candidates, and
    only documents it does not know yet are scanned. Candidates can be re-ranked by the exact
    subspace score or by MaxSim in the same call.

    Parameters
    ----------
    index_folder, index_name, override, k, short_documents, device, show_progress
        As for :class:`pylate_eigenli.EigenLIIndex`.
    preset, filter, centering, corpus_mean, idf, background
        As well. A soft filter uses all directions of a document here, whatever ``k``, unless
        ``keep_bases``: the vector is not longer for it, and no eigenvectors are needed.
    dtype
        Precision of the vectors: ``"float32"``, ``"float16"``, ``"int8"`` (the default),
        ``"int4"`` or ``"binary"``, one bit per dimension.
    keep_tokens
        Whether to keep the token embeddings for re-ranking, and how: ``"none"`` (the default),
        ``"float16"`` or ``"int8"``.
    keep_bases
        Whether to keep the bases, as float16, for re-ranking by ``"eigenli"`` without tokens.
    projection
        A fitted :class:`pylate_eigenli.SVProjection` to make the vectors shorter. It is saved
        with the index and need not be given again.
    token_projection
        A fitted :class:`pylate_eigenli.TokenProjection` that is applied to tokens before anything
        else, for models whose d would make d (d + 1) / 2 too large. Saved as well.
    backend
        ``"exact"`` (the default), ``"voyager"`` or ``"faiss"``; or a vector database that holds
        the documents, ``"milvus"`` or ``"qdrant"``: the index is then a
        :class:`pylate_eigenli.indexes.databases.served_index.ServedSVIndex`.
    backend_options
        Options of the backend, see :mod:`pylate_eigenli.indexes.ann` and
        :mod:`pylate_eigenli.indexes.databases`. Those that only searches depend on, such as ``ef_search``,
        may be others each time the index is opened.
    rerank
        How candidates are scored in the end unless a search says otherwise: ``"none"`` (as the
        vectors score them), ``"eigenli"`` or ``"maxsim"``.
    n_candidates
        Number of candidates to re-rank, and to ask an ANN structure for.
    tokens_of
        Called with ids to get token embeddings for re-ranking if the index does not keep them.
    uri, token
        Where a vector database is and what it wants to see: see
        :func:`pylate_eigenli.indexes.databases.connect`. The uri is remembered, the token never written.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> index = EigenLISVIndex(tempfile.mkdtemp(), k=2, keep_tokens="float16", show_progress=False)
    >>> documents = torch.eye(8).reshape(2, 4, 8)
    >>> index = index.add_documents(["first", "second"], documents)
    >>> index(documents[1], k=1, rerank="maxsim")
    [[{'id': 'second', 'score': 4.0}]]
    """

    kind = "eigenli-sv"
    settings_type = SVSettings

    def __new__(cls, *args: Any, **kwargs: Any) -> EigenLISVIndex:
        """Make a :class:`ServedSVIndex` if a server is to hold the documents, as Path does."""
        if cls is not EigenLISVIndex:
            return super().__new__(cls)
        call = signature(cls.__init__).bind(None, *args, **kwargs)
        call.apply_defaults()
        backend, path = call.arguments["backend"], Path(call.arguments["index_folder"])
        if backend is None and not call.arguments["override"]:
            manifest = Manifest.read(path / call.arguments["index_name"])
            backend = manifest.meta.get("settings", {}).get("backend")
        if backend not in servers.NAMES:
            return super().__new__(cls)
        from .databases.served_index import ServedSVIndex

        return super().__new__(ServedSVIndex)

    def __init__(
        self,
        index_folder: str = "indexes",
        index_name: str = "eigenli-sv",
        override: bool = False,
        k: int | None = None,
        dtype: VectorDtype | None = None,
        short_documents: ShortDocuments | None = None,
        preset: Preset | None = None,
        filter: str | SpectralFilter | None = None,
        centering: Centering | None = None,
        corpus_mean: ArrayLike | None = None,
        idf: float | None = None,
        background: float | None = None,
        keep_tokens: KeepTokens | None = None,
        keep_bases: bool | None = None,
        projection: SVProjection | None = None,
        token_projection: TokenProjection | None = None,
        backend: str | None = None,
        backend_options: dict[str, Any] | None = None,
        rerank: Rerank = "none",
        n_candidates: int = 100,
        tokens_of: TokensOf | None = None,
        device: str | None = None,
        show_progress: bool = True,
        uri: str | None = None,
        token: str | None = None,
    ) -> None:
        settings = with_preset(
            preset,
            filter,
            k=k,
            dtype=dtype,
            short_documents=short_documents,
            centering=centering,
            corpus_mean=corpus_mean,
            idf=idf,
            background=background,
            keep_tokens=keep_tokens,
            keep_bases=keep_bases,
            projection=None if projection is None else projection.dim,
            token_projection=None if token_projection is None else token_projection.dim,
            backend=backend,
            backend_options=backend_options,
        )
        super().__init__(index_folder, index_name, override, settings, device, show_progress)
        self.rerank = rerank
        self.n_candidates = n_candidates
        self.tokens_of = tokens_of
        self._given = Projections(token_projection, projection)
        self._accelerator = accelerator.Accelerator()
        # What was loaded last, and of which arrays of a collection.
        self._loaded: tuple[Hashable, Projections] | None = None
        check_rerank(rerank, self.settings, tokens_of)
        self._open_backend(override, uri, token)

    def _open_backend(self, override: bool, uri: str | None, token: str | None) -> None:
        """Refuse a backend that cannot be used as it is asked for."""
        for name, value in (("uri", uri), ("token", token)):
            if value is not None:
                raise ValueError(f"{name} is for the backends {' and '.join(servers.NAMES)} only")
        if self.settings.backend != "exact":
            backends.check(self.settings.backend, self.settings.backend_options)

    # --- documents to vectors -----------------------------------------------------------------

    def _append(
        self, transaction: Transaction, ids: list[DocumentId], tokens: TokenBatch
    ) -> NDArray[np.float64]:
        settings = self.settings_type(**transaction.meta["settings"])
        first = transaction.meta.get("next_label", 0)
        transaction.meta["next_label"] = first + len(ids)
        base = transaction.base
        projections = self._projections(base) if base.collection else self._given
        packed, kept = projections.compress(tokens, settings)
        if not transaction.collection:
            # For the other batches of this transaction, too.
            projections = self._given = projections.centred_on(packed, settings)
            projections.store(transaction)
        vectors = projections.document_vectors(packed)
        columns = vector_column.encode(vectors, settings.dtype, projections.axis)
        documents: dict[str, NDArray[Any]] = {
            "label": np.arange(first, first + len(ids)),
            **columns,
            **kept.documents,
        }
        transaction.append(ids, documents=documents, rows=kept.rows, lengths=kept.lengths)
        width = settings.width(tokens.dim)
        stored = vector_column.decode(columns, settings.dtype, width, projections.axis)
        return projections.matrix_sum(stored)

    def _matrix_sum(
        self, snapshot: Snapshot, segment: Segment, documents: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        vectors = self._reader(snapshot)(segment, documents)
        return self._projections(snapshot).matrix_sum(vectors)

    def _reader(self, snapshot: Snapshot) -> accelerator.Read:
        """Return what reads the vectors at some rows of a segment of a state."""
        settings, dim = self._settings_of(snapshot)
        assert dim is not None
        width, axis = settings.width(dim), self._projections(snapshot).axis
        return partial(vector_column.read, dtype=settings.dtype, dim=width, axis=axis)

    def _projections(self, snapshot: Snapshot) -> Projections:
        """Return the projections of a state, loaded once."""
        key = snapshot.manifest.collection
        known = self._loaded  # looked at once: another thread may be at another state
        if known is None or known[0] != key:
            known = self._loaded = (key, Projections.load(snapshot.collection))
        return known[1]

    def _comparable(self, snapshot: Snapshot, queries: TokenBatch) -> TokenBatch:
        return super()._comparable(snapshot, self._projections(snapshot).project(queries))

    # --- searching ----------------------------------------------------------------------------

    def __call__(
        self,
        queries_embeddings: Any,
        k: int = 10,
        subset: Sequence[Sequence[DocumentId]] | Sequence[DocumentId] | None = None,
        idf: float | None = None,
        background: float | None = None,
        rerank: Rerank | None = None,
        n_candidates: int | None = None,
    ) -> list[list[RerankResult]]:
        """Find the documents with the highest scores.

        Parameters
        ----------
        queries_embeddings, k, subset, idf, background
            As for :class:`pylate_eigenli.EigenLIIndex`. A subset is always scanned, never left
            to an ANN structure, so that it is complete.
        rerank, n_candidates
            By default what the index was opened with.

        Returns
        -------
        For each query a list of results with ``id`` and ``score``, best first; of equal ones the
        one added first.
        """
        wanted = rerank or self.rerank
        check_rerank(wanted, self.settings, self.tokens_of)
        candidates = max(n_candidates or self.n_candidates, checked_k(k))
        find = partial(self._find, rerank=wanted, n_candidates=candidates)
        return self._answer(find, queries_embeddings, k, subset, idf, background)

    def _find(
        self,
        snapshot: Snapshot,
        queries: Queries,
        k: int,
        allowed: Allowed,
        rerank: Rerank = "none",
        n_candidates: int = 0,
    ) -> Iterable[Hits]:
        if not snapshot.segments:
            nothing = Hits(np.empty(0, np.int64), np.empty(0, np.float32))
            yield from [nothing] * len(queries)
            return
        projections = self._projections(snapshot)
        vectors, constants = projections.query_vectors(queries)
        wanted = k if rerank == "none" else max(k, n_candidates)
        # A subset is scanned in any case.
        free = [i for i in range(len(queries)) if allowed is None or allowed[i] is None]
        scanned_from, candidates = self._accelerator.candidates(
            snapshot, self._settings_of(snapshot)[0], vectors[free], max(wanted, n_candidates)
        )
        found = dict(zip(free, candidates, strict=True))
        at_once = int(np.clip((64 << 20) // (4 * max(int(snapshot.starts[-1]), 1)), 1, 128))
        tokens = list(queries.plain if rerank == "maxsim" else queries.tokens)
        for begin in range(0, len(queries), at_once):
            chunk = range(begin, min(begin + at_once, len(queries)))
            scanned = [i for i in chunk if i in found]
            scans = dict(
                zip(scanned, self._scan(snapshot, scanned_from, vectors[scanned]), strict=True)
            )
            for i in chunk:
                if i in scans:
                    rows = np.flatnonzero(scans[i] > -np.inf) + scanned_from
                    scores = scans[i][rows - scanned_from]
                    known = self._scored(snapshot, found[i], vectors[i : i + 1])
                    rows, scores = np.concatenate([found[i], rows]), np.concatenate([known, scores])
                else:
                    assert allowed is not None
                    rows = allowed[i]  # type: ignore[assignment]
                    scores = self._scored(snapshot, rows, vectors[i : i + 1])
                hits = _best(rows, scores + constants[i], wanted)
                if rerank != "none":
                    hits = self._reranked(snapshot, hits, tokens[i], queries.against, k, rerank)
                yield hits

    def _scan(self, snapshot: Snapshot, begin: int, vectors: torch.Tensor) -> NDArray[np.float32]:
        """Return the scores of all global rows from ``begin`` on, -inf for the dead."""
        scores = np.full((len(vectors), int(snapshot.starts[-1]) - begin), -np.inf, np.float32)
        dtype, axis = self._settings_of(snapshot)[0].dtype, self._projections(snapshot).axis
        if not len(vectors):
            return scores
        for start, segment in zip(snapshot.starts.tolist(), snapshot.segments, strict=False):
            first = max(begin - start, 0)
            if first >= segment.n_documents:
                continue
            target = scores[:, start + first - begin : start + segment.n_documents - begin]
            target[:] = vector_column.scores(segment, slice(first, None), dtype, vectors, axis)
            target[:, ~segment.alive[first:]] = -np.inf
        return scores

    def _scored(
        self, snapshot: Snapshot, rows: NDArray[np.int64], vector: torch.Tensor
    ) -> NDArray[np.float32]:
        """Return the scores of chosen global rows for one query vector (1, D)."""
        dtype, axis = self._settings_of(snapshot)[0].dtype, self._projections(snapshot).axis
        scores = np.empty(len(rows), np.float32)
        for segment, local, positions in snapshot.by_segment(rows):
            scores[positions] = vector_column.scores(segment, local, dtype, vector, axis)[0]
        return scores

    def _reranked(
        self,
        snapshot: Snapshot,
        hits: Hits,
        query: torch.Tensor,
        against: torch.Tensor | None,
        k: int,
        rerank: Rerank,
    ) -> Hits:
        settings, projections = self._settings_of(snapshot)[0], self._projections(snapshot)
        rows = np.sort(hits.rows)  # so that equal scores fall back to the order of insertion
        scores = np.empty(len(rows), np.float32)
        for segment, local, positions in snapshot.by_segment(rows):
            scores[positions] = rescore(
                segment, local, query, against, rerank, settings, projections, self.tokens_of
            )
        return _best(rows, scores, k)

    # --- the ANN structure --------------------------------------------------------------------

    def _changed(self) -> None:
        """Let the ANN structure grow once enough documents are waiting."""
        if accelerator.is_due(self._snapshot, self.settings):
            self.build()

    def build(self) -> EigenLISVIndex:
        """Bring the ANN structure up to date with all documents, made anew if many were removed."""
        settings, dim = self.settings, self.dim
        if settings.backend != "exact" and dim is not None and len(self):
            with self._open_store.transaction() as transaction:
                read = self._reader(transaction.base)
                accelerator.build(transaction, settings, settings.width(dim), read)
        return self

    def recall_against_exact(self, queries_embeddings: Any, k: int = 10) -> float:
        """Return the share of the k best documents by a full scan that a search finds, on average."""
        snapshot = self._snapshot
        found = self(queries_embeddings, k, rerank="none")
        if not len(snapshot):
            return 1.0
        queries = self._queries(snapshot, queries_embeddings, None, None)
        vectors, _ = self._projections(snapshot).query_vectors(queries)
        shares = []
        for i, hits in enumerate(found):
            scores = self._scan(snapshot, 0, vectors[i : i + 1])[0]
            best = _best(np.flatnonzero(scores > -np.inf), scores[scores > -np.inf], k)
            truth = set(snapshot.ids_of(best.rows))
            shares.append(len(truth & {hit["id"] for hit in hits}) / len(truth))
        return float(np.mean(shares))

    # --- reading ------------------------------------------------------------------------------

    def get_documents_embeddings(  # type: ignore[override]
        self, documents_ids: Sequence[Sequence[DocumentId]]
    ) -> list[list[NDArray[np.float32]]]:
        """Return the token embeddings, or else the bases, that are kept, in the structure of the ids.

        Returns
        -------
        For each id a matrix. Shape: (tokens, d) or (rank, d), float32.
        """
        kept = self.settings.kept
        if kept is None:
            raise ValueError("the index keeps neither tokens nor bases")
        return self._kept_rows(kept, documents_ids)

    def _kept_rows(
        self, name: str, documents_ids: Sequence[Sequence[DocumentId]]
    ) -> list[list[NDArray[np.float32]]]:
        return codec.decode_by_id(self._snapshot, name, documents_ids)


def _best(rows: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> Hits:
    """Return the best k of rows; of equal scores the lower row."""
    if k < len(scores):
        bar = torch.topk(torch.from_numpy(scores), k).values[-1].item()
        keep = np.flatnonzero(scores >= bar)
        rows, scores = rows[keep], scores[keep]
    order = np.lexsort((rows, -scores))[:k]
    return Hits(rows[order], scores[order])
