"""EigenLISVIndex: a PyLate index of one vector per document, in files or in a vector database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import Self, Unpack

from ..errors import check_positive
from ..scores.interface import RerankResult
from ..spectral.background import Queries
from ..storage import Snapshot
from ..vectors.projection import SVProjection, TokenProjection
from ..vectors.quantization import VectorDtype
from . import databases
from .ann.accelerator import Accelerator
from .base import DocumentIndex
from .codecs import VectorCodec
from .databases.documents import DatabaseDocuments
from .documents import SearchRequest, Subset
from .local_documents import LocalDocuments
from .rerank import Rerank, Reranker, TokensOf, check_rerank
from .settings import KeepTokens, SpectralOptions, SVSettings
from .vector_search import VectorSearch


class EigenLISVIndex(DocumentIndex[SVSettings, VectorCodec]):
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
    preset, filter, centering, corpus_mean, standardise, idf, background
        As well. A soft filter uses all directions of a document here, whatever ``k``, unless
        ``keep_bases``: the vector is not longer for it, and no eigenvectors are needed.
    dtype
        Precision of the vectors: ``"float32"``, ``"float16"``, ``"int8"`` (the default),
        ``"int4"``, ``"int2"`` or ``"binary"``, one bit per dimension. :attr:`agreement` tells how
        well codes keep the exact scores, and a warning does if they do not.
    keep_tokens
        Whether to keep the token embeddings for re-ranking, and how: ``"none"`` (the default),
        ``"float16"`` or ``"int8"``.
    keep_bases
        Whether to keep the bases, as float16, for re-ranking by ``"eigenli"`` without tokens.
    projection
        A fitted :class:`pylate_eigenli.SVProjection` to make the vectors shorter. It is saved
        with the index and need not be given again. Of the presets, ``"auto"`` chooses one whose
        vectors it was fitted to.
    token_projection
        A fitted :class:`pylate_eigenli.TokenProjection` that is applied to tokens before anything
        else, for models whose d would make d (d + 1) / 2 too large. Saved as well.
    backend
        ``"exact"`` (the default); ``"sketch"`` for very many documents, which reads 128 bytes of
        each and the vectors of the best few thousand, from 20,000 documents on; ``"voyager"`` or
        ``"faiss"``; or a vector database that holds the documents, ``"milvus"`` or ``"qdrant"``, see
        :class:`pylate_eigenli.indexes.databases.documents.DatabaseDocuments` for what differs.
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
    trust_index
        Whether to open a database that only the folder names, and an ANN structure of a library
        that somebody else has built or that was built in another folder. Both can run code, so
        this is for folders of people you trust. What you have named or built yourself is opened
        anyway, and documents of a structure that is not opened are scanned.

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
    codec_type = VectorCodec

    def __init__(
        self,
        index_folder: str = "indexes",
        index_name: str = "eigenli-sv",
        override: bool = False,
        *,
        dtype: VectorDtype | None = None,
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
        trust_index: bool = False,
        **options: Unpack[SpectralOptions],
    ) -> None:
        if backend in databases.NAMES and dtype is None:
            dtype = "float32"
        check_positive(n_candidates=n_candidates)
        super().__init__(
            index_folder,
            index_name,
            override,
            options,
            device,
            show_progress,
            projections=(token_projection, projection),
            dtype=dtype,
            keep_tokens=keep_tokens,
            keep_bases=keep_bases,
            projection=_dim_of("projection", projection, SVProjection),
            token_projection=_dim_of("token_projection", token_projection, TokenProjection),
            backend=backend,
            backend_options=backend_options,
        )
        if backend_options and self.settings.backend == "exact":
            option = next(iter(backend_options))
            raise ValueError(f"the exact backend has no option {option!r}: name a backend")
        self.rerank = rerank
        self.n_candidates = n_candidates
        self.tokens_of = tokens_of
        check_rerank(rerank, self.settings, tokens_of)
        if self.settings.in_database:
            self._documents = DatabaseDocuments(self._collection, uri, token, trust_index, override)
            return
        for name, value in (("uri", uri), ("token", token)):
            if value is not None:
                raise ValueError(f"{name} is for the backends {' and '.join(databases.NAMES)} only")
        ann = Accelerator(self._collection.path, trust_index)
        search = VectorSearch(self._collection, ann)
        self._documents = LocalDocuments(self._collection, search, ann)

    # --- searching ----------------------------------------------------------------------------

    def __call__(
        self,
        queries_embeddings: Any,
        k: int = 10,
        subset: Subset = None,
        idf: float | None = None,
        background: float | None = None,
        rerank: Rerank | None = None,
        n_candidates: int | None = None,
    ) -> list[list[RerankResult]]:
        """Find the documents with the highest scores.

        Parameters
        ----------
        queries_embeddings, k, subset, idf, background
            As for :class:`pylate_eigenli.EigenLIIndex`. In files a subset is always scanned, never
            left to an ANN structure, so that it is complete.
        rerank, n_candidates
            By default what the index was opened with.

        Returns
        -------
        For each query a list of results with ``id`` and ``score``, best first; of equal ones the
        one added first.
        """
        own = {"rerank": rerank, "n_candidates": n_candidates}
        return self._search(queries_embeddings, k, subset, idf, background, **own)

    def _request(
        self,
        state: Snapshot,
        queries: Queries,
        k: int,
        rerank: Rerank | None = None,
        n_candidates: int | None = None,
    ) -> SearchRequest:
        wanted = rerank or self.rerank
        check_positive(or_none=True, n_candidates=n_candidates)
        check_rerank(wanted, self._collection.settings(state), self.tokens_of)
        reranker = None
        if wanted != "none":
            reranker = Reranker(wanted, queries, self._collection.codec(state), self.tokens_of)
        return SearchRequest(queries, k, reranker, max(n_candidates or self.n_candidates, k))

    @property
    def agreement(self) -> float | None:
        """Mean correlation of the codes' scores with those of the vectors they stand for.

        Measured on the first documents; None for floats, and if these were too few to tell.
        """
        return self._collection.codec(self._snapshot).agreement

    def build(self) -> Self:
        """Bring the ANN structure up to date with all documents, made anew if many were removed."""
        self._documents.build()
        return self

    def recall_against_exact(self, queries_embeddings: Any, k: int = 10) -> float:
        """Return the share of the k best documents by a full scan that a search finds, on average.

        For a database the scan fetches all vectors.
        """
        check_positive(k=k)
        state = self._snapshot
        queries = self._queries(state, queries_embeddings, None, None)
        request = SearchRequest(queries, int(k), n_candidates=max(self.n_candidates, k))
        found = self._documents.search(state, request, None)
        truth = self._documents.search(state, replace(request, exact=True), None)
        shares = [
            len(set(hits.ids) & set(best.ids)) / len(best.ids)
            for hits, best in zip(found, truth, strict=True)
            if best.ids
        ]
        return float(np.mean(shares)) if shares else 1.0


def _dim_of(option: str, projection: Any, kind: type[SVProjection | TokenProjection]) -> int | None:
    """Return the number of dimensions that a projection gives; refuse what is none."""
    if projection is None:
        return None
    if isinstance(projection, kind):
        return int(projection.dim)
    raise TypeError(f"{option} must be of {kind.__name__}, got {type(projection).__name__}")
