"""ServedSVIndex: an EigenLISVIndex whose documents live in a vector database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pylate.rank import RerankResult
from typing_extensions import Self

from .. import databases as servers
from ...spectral.background import Background, Queries
from ...vectors.rows import decode_documents
from .payload import FetchedDocuments, to_bytes
from ...errors import UnknownDocumentError
from ..inputs import checked_k, document_batches, several, subset_per_query
from ..rerank import Rerank, check_rerank, rescore
from .limits import check_dimension
from .upload import Batch, Uploader, listed, verify
from ...storage import DocumentId, Segment
from ...storage.ids import checked_id, checked_ids
from ...storage.ragged import offsets_of
from ...vectors.encoder import Projections, SVSettings
from ..single_vector import EigenLISVIndex
from ...tokens import TokenBatch
from ..columns import VectorDtype

_SCAN_BYTES = 16 << 20
_FETCHED_AT_ONCE = 1000


@dataclass(frozen=True)
class ServedSettings(SVSettings):
    """What the index is made with; servers take floats and round them as their options say."""

    dtype: VectorDtype = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype != "float32":
            raise ValueError(
                f'dtype must be "float32" for backend={self.backend!r}, got {self.dtype!r}: what '
                "the server searches is said by index_type or quantization in backend_options"
            )
        if self.backend in servers.NAMES:  # and not left to an index that exists
            servers.check(self.backend, self.backend_options)


class ServedSVIndex(EigenLISVIndex):
    """What ``EigenLISVIndex(backend="milvus")`` or ``backend="qdrant"`` gives.

    The folder of the index holds its settings and projections, and the server all the rest; other
    machines can search it with a copy of the folder. The interface is that of
    :class:`pylate_eigenli.EigenLISVIndex`, with differences that come from the server:

    - Documents can be found as soon as the server has them. An upload that is interrupted leaves
      those that had arrived; adding the same documents again completes it, with none twice.
    - A subset is a filter of the server, complete where the server's structure is exact.
    - Documents of equal score come in any order.
    - The background (:mod:`pylate_eigenli.spectral.background`) is the mean of all documents that were
      ever sent: those that have been removed or replaced since still count.

    Examples
    --------
    >>> import tempfile
    >>> import pytest
    >>> import torch
    >>> _ = pytest.importorskip("qdrant_client")
    >>> from pylate_eigenli import EigenLISVIndex
    >>> index = EigenLISVIndex(
    ...     tempfile.mkdtemp(), k=2, backend="qdrant", uri=":memory:", show_progress=False
    ... )
    >>> documents = torch.eye(8).reshape(2, 4, 8)
    >>> index = index.add_documents(["first", "second"], documents)
    >>> index(documents[1], k=1)[0][0]["id"]
    'second'
    """

    settings_type = ServedSettings

    def _open_backend(self, override: bool, uri: str | None, token: str | None) -> None:
        settings = self.settings
        if uri is not None and not servers.is_remote(uri) and uri != ":memory:":
            uri = str(
                Path(uri).absolute()
            )  # it is remembered, and has to be the same from anywhere
        self._uri = uri if uri is not None else self._snapshot.meta.get("uri")
        path = str(Path(self.index_folder) / self.index_name)
        self._server = servers.connect(
            settings.backend, self._uri, token, path, settings.backend_options
        )
        self._is_open = False
        if override:
            self._server.drop()

    @property
    def _documents(self) -> servers.VectorServer | None:
        """The server, ready to be used; None before the first document."""
        settings, dim = self._settings_of(self._snapshot)
        if dim is None:
            return None
        if not self._is_open:
            if "background" in self._snapshot.meta and not self._server.exists():
                raise ValueError(
                    f"documents of {self.index_name!r} were sent to {self._uri or 'the database'}, "
                    "but it has no collection of them; start again with override=True"
                )
            self._server.open(settings.width(dim), settings.kept is not None)
            self._is_open = True
        return self._server

    def close(self) -> None:
        """Let go of the files and of the connection."""
        if self._store is not None:
            self._server.close()
        super().close()

    def __len__(self) -> int:
        server = self._documents
        return 0 if server is None else server.count()

    def __contains__(self, document_id: object) -> bool:
        return not self.missing([checked_id(document_id)])

    def missing(self, documents_ids: Iterable[DocumentId]) -> list[DocumentId]:
        """Return the ids that the server does not hold: what is left of an interrupted upload."""
        ids = checked_ids(documents_ids)
        server = self._documents
        return ids if server is None else server.missing(ids)

    # --- changing -----------------------------------------------------------------------------

    def add_documents(  # type: ignore[override]
        self,
        documents_ids: DocumentId | Iterable[DocumentId],
        documents_embeddings: Any,
        batch_size: int = 1024,
    ) -> Self:
        """Add documents; one whose id is already there is replaced.

        Documents are sent while others are still compressed. In the end the server is asked for
        all of them, and an :class:`pylate_eigenli.errors.UploadError` says which are missing.

        Parameters
        ----------
        documents_ids, documents_embeddings, batch_size
            As for :class:`pylate_eigenli.EigenLISVIndex`.
        """
        dim = self.dim
        total, batches = document_batches(
            documents_ids, documents_embeddings, batch_size, dim, self.device
        )
        return self.upload((self._encoded(ids, tokens) for ids, tokens in batches), total)

    def _encoded(self, ids: list[DocumentId], tokens: TokenBatch) -> Batch:
        snapshot = self._snapshot
        settings, known = self._settings_of(snapshot)
        projections = self._given if known is None else self._projections(snapshot)
        packed, kept = projections.compress(tokens, settings)
        if known is None:
            self.prepare(tokens.dim, projections.centred_on(packed, settings))
            projections = self._projections(self._snapshot)
        rows = None
        if kept.lengths is not None:
            rows = to_bytes(kept.documents, kept.rows, offsets_of(kept.lengths))
        return Batch(ids, projections.document_vectors(packed).numpy(), rows)

    def prepare(self, dim: int, projections: Projections) -> None:
        """Fix the settings and projections, before the first document is sent.

        If somebody else has done so in the meantime, theirs hold.

        Parameters
        ----------
        dim
            Dimension of the tokens.
        projections
            What vectors go through, with a centre if they are not projected.
        """
        with self._open_store.transaction() as transaction:
            settings, known = self._settings_of(transaction.base)
            if known is not None:
                if known != dim:
                    raise ValueError(f"documents have dimension {dim}, expected {known}")
                return
            check_dimension(settings.backend, settings.width(dim))
            if self._server.exists():
                raise ValueError(
                    "the server has a collection of that name, and it is not of this index: "
                    'choose another one with backend_options={"collection": ...}, or replace it '
                    "with override=True"
                )
            transaction.meta.update(
                kind=self.kind, settings=asdict(settings), dim=dim, uri=self._uri
            )
            projections.store(transaction)

    def upload(self, batches: Iterable[Batch], total: int | None) -> Self:
        """Send vectors as the index makes them, and see to it that all arrive.

        Parameters
        ----------
        batches
            The documents. The index must have been prepared when the first one comes.
        total
            Their number, if known, for the progress bar.
        """
        sent: dict[DocumentId, None] = {}
        matrices: NDArray[np.float64] | float = 0.0
        with self._progress(total) as progress, Uploader(self._server, progress) as uploader:
            for batch in batches:
                server = self._documents
                assert server is not None  # it has been prepared
                ids = checked_ids(batch.ids)
                for document_id in ids:
                    if document_id in sent:
                        raise ValueError(f"document id {document_id!r} is given twice")
                    sent[document_id] = None
                uploader.put(Batch(ids, batch.vectors, batch.rows))
                vectors = torch.from_numpy(batch.vectors)
                matrices = matrices + self._projections(self._snapshot).matrix_sum(vectors)
        if sent:
            verify(self._server, list(sent))
            self._extend_background(np.asarray(matrices), len(sent))
        return self

    def _extend_background(self, matrices: NDArray[np.float64], documents: int) -> None:
        with self._open_store.transaction() as transaction:
            background = self._background(transaction.base) or Background.empty(len(matrices))
            transaction.meta["background"] = background.plus(matrices, documents).to_json()

    def remove_documents(  # type: ignore[override]
        self, documents_ids: DocumentId | Iterable[DocumentId]
    ) -> Self:
        """Remove documents. An id that the index does not hold is an error and removes nothing."""
        ids = checked_ids(several(documents_ids))
        if missing := self.missing(ids):
            raise UnknownDocumentError(
                f"{len(missing)} of {len(ids)} documents are not in the index: {listed(missing)}"
            )
        if ids:
            self._server.remove(ids)
        return self

    def build(self) -> Self:
        """Wait until the server has its ANN structures up to date."""
        if (server := self._documents) is not None:
            server.settle()
        return self

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
        queries_embeddings, k, subset, idf, background, rerank, n_candidates
            As for :class:`pylate_eigenli.EigenLISVIndex`.

        Returns
        -------
        For each query a list of results with ``id`` and ``score``, best first.
        """
        wanted = rerank or self.rerank
        check_rerank(wanted, self.settings, self.tokens_of)
        k = checked_k(k)
        queries = self._queries(self._snapshot, queries_embeddings, idf, background)
        depth = k if wanted == "none" else max(k, n_candidates or self.n_candidates)
        found = self._found(queries, depth, subset)
        if wanted != "none":
            found = self._rescored(found, queries, wanted)
        return [
            [
                RerankResult(id=document_id, score=score)
                for document_id, score in zip(ids[:k], scores[:k].tolist(), strict=True)
            ]
            for ids, scores in found
        ]

    def _found(
        self,
        queries: Queries,
        k: int,
        subset: Sequence[Sequence[DocumentId]] | Sequence[DocumentId] | None,
    ) -> list[servers.Found]:
        """Return the best k documents of every query and their scores."""
        server = self._documents
        nothing = servers.Found([], np.empty(0, np.float32))
        if server is None:
            return [nothing] * len(queries)
        vectors, constants = self._projections(self._snapshot).query_vectors(queries)
        if subset is None:
            found = server.search(vectors.numpy(), k, None)
        else:
            found = [
                server.search(vectors[i : i + 1].numpy(), k, checked_ids(ids))[0]
                if len(ids)
                else nothing
                for i, ids in enumerate(subset_per_query(subset, len(queries)))
            ]
        return [
            _best(hits.ids, hits.products + constant)
            for hits, constant in zip(found, constants, strict=True)
        ]

    def _rescored(
        self, found: list[servers.Found], queries: Queries, rerank: Rerank
    ) -> list[servers.Found]:
        """Score the candidates of all queries by what the server keeps of them."""
        projections = self._projections(self._snapshot)
        tokens = list(queries.plain if rerank == "maxsim" else queries.tokens)
        result = []
        deepest = max((len(hits.ids) for hits in found), default=0)
        at_once = max(1, _FETCHED_AT_ONCE // max(deepest, 1))
        for begin in range(0, len(found), at_once):
            part = found[begin : begin + at_once]
            data = self._fetch(document_id for hits in part for document_id in hits.ids)
            for hits, query in zip(part, tokens[begin : begin + at_once], strict=True):
                # Some may have been removed since they were found.
                ids = hits.ids if data is None else [i for i in hits.ids if i in data]
                if not ids:
                    result.append(servers.Found([], np.empty(0, np.float32)))
                    continue
                scores = rescore(
                    self._as_segment(ids, data),
                    np.arange(len(ids)),
                    query,
                    queries.against,
                    rerank,
                    self.settings,
                    projections,
                    self.tokens_of,
                )
                result.append(_best(ids, scores))
        return result

    def _fetch(self, ids: Iterable[DocumentId]) -> dict[DocumentId, bytes] | None:
        """Return what the server keeps of those documents that are there; None if nothing ever."""
        server = self._documents
        if self.settings.kept is None or server is None:
            return None
        return server.rows(list(dict.fromkeys(ids)))

    def _as_segment(
        self, ids: Sequence[DocumentId], data: dict[DocumentId, bytes] | None
    ) -> Segment:
        """Return fetched documents, to be read like a segment; without columns if none are kept."""
        kept = self.settings.kept
        if kept is None or data is None:
            return cast("Segment", FetchedDocuments(ids, {}, np.zeros(1, np.int64)))
        return cast("Segment", FetchedDocuments.from_bytes(ids, [data[i] for i in ids], kept))

    def recall_against_exact(self, queries_embeddings: Any, k: int = 10) -> float:
        """Return the share of the k best documents by a full scan that a search finds, on average.

        The scan fetches all vectors from the server.
        """
        found = self(queries_embeddings, k, rerank="none")
        server = self._documents
        if server is None or not server.count():
            return 1.0
        queries = self._queries(self._snapshot, queries_embeddings, None, None)
        vectors, _ = self._projections(self._snapshot).query_vectors(queries)
        best = [servers.Found([], np.empty(0, np.float32))] * len(queries)
        for ids, block in server.scan(max(1, _SCAN_BYTES // (4 * vectors.shape[1]))):
            for i, scores in enumerate(vectors.numpy() @ block.T):
                merged = _best(best[i].ids + ids, np.concatenate([best[i].products, scores]))
                best[i] = servers.Found(merged.ids[:k], merged.products[:k])
        shares = [
            len(set(truth.ids) & {hit["id"] for hit in hits}) / len(truth.ids)
            for truth, hits in zip(best, found, strict=True)
        ]
        return float(np.mean(shares))

    # --- reading ------------------------------------------------------------------------------

    def _kept_rows(
        self, name: str, documents_ids: Sequence[Sequence[DocumentId]]
    ) -> list[list[NDArray[np.float32]]]:
        if any(isinstance(ids, (str, int)) for ids in documents_ids):
            raise TypeError("documents_ids must be a list of lists of ids")
        wanted = [checked_ids(ids) for ids in documents_ids]
        data = self._fetch(document_id for ids in wanted for document_id in ids) or {}
        for document_id in chain.from_iterable(wanted):
            if document_id not in data:
                raise UnknownDocumentError(f"no document {document_id!r} in the index")
        return [
            decode_documents(self._as_segment(ids, data), name, np.arange(len(ids))) if ids else []
            for ids in wanted
        ]


def _best(ids: list[DocumentId], scores: NDArray[np.float32]) -> servers.Found:
    """Return documents by descending score."""
    order = np.argsort(-scores, kind="stable")
    return servers.Found([ids[i] for i in order], scores[order])
