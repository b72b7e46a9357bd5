"""Documents in a vector database."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load, save

from ...errors import UnknownDocumentError
from ...spectral.background import Background
from ...storage import DocumentId, Snapshot
from ...storage.batch import Batch
from ...storage.ids import checked_ids
from ...storage.trust import is_signed, sign, untrusted
from .. import columns, databases
from ..codecs import Codec, VectorCodec
from ..collection import Collection, store_background, stored_background
from ..documents import Progress, SearchRequest, Subset, TokenBatches
from ..inputs import subset_per_query
from ..results import Found
from ..settings import SVSettings
from .upload import Upload, Uploader, listed, verify

_SCAN_BYTES = 16 << 20
_FETCHED_AT_ONCE = 1000


class DatabaseDocuments:
    """Documents in a database; the folder of the index holds its settings and its encoder.

    Other machines can search the documents with a copy of the folder, if they name the uri or trust
    the folder (:mod:`pylate_eigenli.storage.trust`). Differences from files:

    - A search finds documents as soon as the database has them. After an interrupted upload, add
      the same documents again: those that had arrived are not stored twice.
    - Every search sees the current documents of the database, whatever state of the folder it
      uses. The generation counts the changes made through this folder.
    - A subset is a filter of the database. It finds all its documents if the search is exact.
    - Documents with equal scores come in any order.
    - The background (:mod:`pylate_eigenli.spectral.background`) is the mean of all documents that
      were ever sent, including documents that have been removed or replaced.

    The uri is by default the one that was given first; one that only the folder names is used with
    ``trust_index``. With ``override`` the first documents replace those of the database.
    """

    in_database = True

    def __init__(
        self,
        collection: Collection[SVSettings, VectorCodec],
        uri: str | None,
        token: str | None,
        trust_index: bool,
        override: bool,
    ) -> None:
        self._collection = collection
        state = collection.snapshot
        settings = collection.settings(state)
        if uri is not None and not databases.is_remote(uri) and uri != ":memory:":
            # The folder records it, so it must not depend on the working directory.
            uri = str(Path(uri).absolute())
        self._uri = uri if uri is not None else state.meta.get("uri")
        is_named = uri is not None or collection.dim(state) is None or self._uri == ":memory:"
        if not is_named and not trust_index:
            name, signature = _signed_name(settings.backend, self._uri), state.meta.get("signature")
            if not is_signed(collection.path, name, signature):
                what = f"the {settings.backend} database {self._uri or 'next to it'}"
                raise untrusted(collection.path, what, "uri=")
        self._database = databases.connect(
            settings.backend, self._uri, token, str(collection.path), settings.backend_options
        )
        self._is_open = False
        self._learnt: VectorCodec | None = None  # by the documents that are being sent
        self._override = override

    @property
    def thread_safe(self) -> bool:
        return not self._database.embedded

    def _opened(self, state: Snapshot) -> databases.VectorDatabase | None:
        """Return the open database; None before the first document."""
        if self._collection.dim(state) is None:
            return None
        if not self._is_open:
            if self.background(state) is not None and not self._database.exists():
                raise ValueError(
                    f"{self._uri or 'the database'} has lost the documents of "
                    f"{self._collection.path.name!r}; start again with override=True"
                )
            settings = self._collection.settings(state)
            width = self._collection.codec(state).encoder.width
            self._database.open(width, settings.kept is not None)
            self._is_open = True
        return self._database

    def count(self, state: Snapshot) -> int:
        database = self._opened(state)
        return 0 if database is None else database.count()

    def nbytes(self, state: Snapshot) -> int:
        size = self._database.nbytes()
        if size is None:
            raise ValueError(
                f"the size of the documents is unknown: {self._uri} does not report it"
            )
        return size + state.nbytes

    def missing(self, state: Snapshot, ids: list[DocumentId]) -> list[DocumentId]:
        database = self._opened(state)
        return ids if database is None else database.missing(ids)

    def compact(self) -> None:
        raise ValueError(
            f"{self._collection.path} cannot be compacted: {self._name} frees the space of removed "
            "documents by itself"
        )

    @property
    def _name(self) -> str:
        return self._collection.settings(self._collection.snapshot).backend

    def build(self) -> None:
        if (database := self._opened(self._collection.snapshot)) is not None:
            database.settle()

    def close(self) -> None:
        self._database.close()

    # --- changing -----------------------------------------------------------------------------

    def add(self, batches: Callable[[int | None], TokenBatches], progress: Progress) -> None:
        dim = self._collection.dim(self._collection.snapshot)
        self._learnt = None
        self._upload(self._encoded(batches(dim)), progress)

    def transfer(
        self,
        dim: int,
        codec: Codec,
        batches: Callable[[Any], Iterable[Batch]],
        progress: Progress,
    ) -> None:
        assert isinstance(codec, VectorCodec)
        self._upload(batches(self._prepared(dim, codec)), progress, only_missing=True)

    def _encoded(self, batches: TokenBatches) -> Iterator[Batch]:
        for ids, tokens in batches:
            state = self._collection.snapshot
            codec = self._learnt or self._collection.codec(state, tokens.dim)
            codec, documents = codec.encode(ids, tokens)
            if self._collection.dim(state) is None:
                prepared = self._prepared(tokens.dim, codec)
                if prepared is not codec:
                    codec, documents = prepared.encode(ids, tokens)
            self._learnt = codec
            yield documents

    def _prepared(self, dim: int, codec: VectorCodec) -> VectorCodec:
        """Fix the settings and the fitted encoder before the first documents are sent.

        Returns the given codec, or the stored one if another process has been faster.
        """
        with self._collection.store.transaction() as transaction:
            known = self._collection.dim(transaction.base)
            if known is not None:
                if known != dim:
                    raise ValueError(f"documents have dimension {dim}, expected {known}")
                return self._collection.codec(transaction.base)
            databases.check_dimension(self._name, codec.encoder.width)
            if not self._override and self._database.exists():
                raise ValueError(
                    "the database has a collection of that name, and it is not of this index: "
                    'choose another one with backend_options={"collection": ...}, or replace it '
                    "with override=True"
                )
            name = _signed_name(codec.settings.backend, self._uri)
            signature = sign(self._collection.path, name)
            self._collection.begin(transaction, codec, dim, uri=self._uri, signature=signature)
            if self._override:
                # Last of all: whatever fails before leaves the old documents in place.
                self._database.drop()
        self._override = False
        return codec

    def _upload(
        self, batches: Iterable[Batch], progress: Progress, only_missing: bool = False
    ) -> None:
        """Send encoded documents, and check that all arrive.

        With ``only_missing``, documents that the database holds are not sent again.
        """
        sent: dict[DocumentId, None] = {}
        matrices: NDArray[np.float64] | float = 0.0
        with Uploader(self._database, progress) as uploader:
            for batch in batches:
                state = self._collection.snapshot
                codec = self._collection.codec(state)
                self._opened(state)
                ids = batch.ids()
                for document_id in ids:
                    if document_id in sent:
                        raise ValueError(f"document id {document_id!r} is given twice")
                    sent[document_id] = None
                vectors = codec.read(batch, np.arange(len(ids)))
                matrices = matrices + codec.encoder.matrix_sum(vectors)
                if only_missing:
                    missing = set(self._database.missing(ids))
                    chosen = np.array([i for i, x in enumerate(ids) if x in missing], np.int64)
                    progress.update(len(ids) - len(chosen))
                    if not len(chosen):
                        continue
                    batch, vectors = batch.take(chosen), vectors[torch.from_numpy(chosen)]
                    ids = batch.ids()
                rows = None
                if codec.settings.kept:
                    rows = _to_bytes(columns.without_vectors(batch))
                uploader.put(Upload(ids, vectors.numpy(), rows))
        if sent:
            verify(self._database, list(sent))
            self._changed(np.asarray(matrices), len(sent))

    def remove(self, ids: list[DocumentId]) -> None:
        if missing := self.missing(self._collection.snapshot, ids):
            raise UnknownDocumentError(
                f"{len(missing)} of {len(ids)} documents are not in the index: {listed(missing)}"
            )
        if ids:
            self._database.remove(ids)
            self._changed(None, 0)

    def _changed(self, matrices: NDArray[np.float64] | None, documents: int) -> None:
        """Count a change, and add the matrices of the sent documents to the background."""
        with self._collection.store.transaction() as transaction:
            transaction.meta["changes"] = transaction.meta.get("changes", 0) + 1
            if matrices is not None:
                known = stored_background(transaction.base) or Background.empty(len(matrices))
                store_background(transaction, known.plus(matrices, documents))
                if self._learnt is not None:
                    self._collection.keep(transaction, self._learnt)
                    self._learnt = None

    def background(self, state: Snapshot) -> Background | None:
        return stored_background(state)

    # --- searching ----------------------------------------------------------------------------

    def search(self, state: Snapshot, request: SearchRequest, subset: Subset) -> Iterable[Found]:
        database, n_queries = self._opened(state), len(request.queries)
        if database is None:
            return [Found.nothing()] * n_queries
        encoded = self._collection.codec(state).encoder.encode_queries(request.queries)
        if request.exact:
            found = self._scanned(database, encoded.vectors, request.depth)
        elif subset is None:
            found = database.search(encoded.vectors, request.depth, None)
        else:
            found = [
                database.search(encoded.vectors[i : i + 1], request.depth, checked_ids(ids))[0]
                if len(ids)
                else Found.nothing()
                for i, ids in enumerate(subset_per_query(subset, n_queries))
            ]
        found = [
            Found.best(ids, products + constant, request.depth)
            for (ids, products), constant in zip(found, encoded.constants, strict=True)
        ]
        return found if request.reranker is None else self._reranked(state, found, request)

    @staticmethod
    def _scanned(
        database: databases.VectorDatabase, queries: NDArray[np.float32], k: int
    ) -> list[Found]:
        """Return the best k documents of every query, found by a scan of all vectors."""
        best = [Found.nothing()] * len(queries)
        for ids, block in database.scan(max(1, _SCAN_BYTES // (4 * queries.shape[1]))):
            for i, products in enumerate(queries @ block.T):
                known = best[i]
                best[i] = Found.best(known.ids + ids, np.concatenate([known.scores, products]), k)
        return best

    def _reranked(
        self, state: Snapshot, found: list[Found], request: SearchRequest
    ) -> Iterator[Found]:
        """Score the candidates of all queries by their tokens or bases."""
        assert request.reranker is not None
        at_once = max(1, _FETCHED_AT_ONCE // max(request.depth, 1))
        for begin in range(0, len(found), at_once):
            part = found[begin : begin + at_once]
            data = self._fetched(state, (i for hits in part for i in hits.ids))
            for query, (candidates, _) in enumerate(part, begin):
                # Another process may have removed some in the meantime.
                ids = candidates if data is None else [i for i in candidates if i in data]
                if not ids:
                    yield Found.nothing()
                    continue
                rows = _rows(ids, data)
                scores = request.reranker.scores(query, rows, np.arange(len(ids)))
                yield Found.best(ids, scores, request.k)

    def _fetched(
        self, state: Snapshot, ids: Iterable[DocumentId]
    ) -> dict[DocumentId, bytes] | None:
        """Return the bytes of documents, without unknown ids; None if the database keeps none."""
        database = self._opened(state)
        if database is None or not self._collection.settings(state).kept:
            return None
        return database.rows(list(dict.fromkeys(ids)))

    # --- reading ------------------------------------------------------------------------------

    def kept(self, state: Snapshot, ids: list[DocumentId]) -> list[NDArray[np.float32]]:
        data = self._fetched(state, ids) or {}
        _check_known(ids, data)
        return columns.kept(_rows(ids, data), np.arange(len(ids))) if ids else []

    def columns(
        self, state: Snapshot, ids: list[DocumentId] | None, batch_size: int, kept: bool
    ) -> Iterator[Batch]:
        database = self._opened(state)
        if database is None:
            _check_known(ids or [], {})
            return
        codec = self._collection.codec(state)
        for part, vectors in (
            database.scan(batch_size) if ids is None else _vectors(database, ids, batch_size)
        ):
            rows = _rows(part, self._fetched(state, part) if kept else None)
            yield codec.with_vectors(rows, torch.from_numpy(vectors))


def _vectors(
    database: databases.VectorDatabase, ids: list[DocumentId], batch_size: int
) -> Iterator[tuple[list[DocumentId], NDArray[np.float32]]]:
    for part in databases.chunks(ids, batch_size):
        known = database.vectors(part)
        _check_known(part, known)
        yield part, np.stack([known[document_id] for document_id in part])


def _rows(ids: list[DocumentId], data: Mapping[DocumentId, bytes] | None) -> Batch:
    """Return fetched documents as columns."""
    return (
        columns.of_nothing(ids)
        if data is None
        else columns.joined(ids, [load(data[i]) for i in ids])
    )


def _to_bytes(documents: Batch) -> list[bytes]:
    """Return each document as a safetensors file with its entries of all columns."""
    result = []
    for i, (begin, end) in enumerate(pairwise(documents.offsets.tolist())):
        entries = {n: np.ascontiguousarray(x[i : i + 1]) for n, x in documents.documents.items()}
        entries |= {n: np.ascontiguousarray(x[begin:end]) for n, x in documents.rows.items()}
        result.append(save(entries))
    return result


def _check_known(ids: Iterable[DocumentId], known: Container[DocumentId]) -> None:
    for document_id in ids:
        if document_id not in known:
            raise UnknownDocumentError(f"no document {document_id!r} in the index")


def _signed_name(backend: str, uri: str | None) -> str:
    return f"{backend} {uri or ''}"
