"""Qdrant: the uri chooses between memory, a folder, one server and a cluster."""

from __future__ import annotations

import time
import weakref
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from ...errors import check_positive
from ...storage import DocumentId
from ..registry import library
from ..results import Found
from . import (
    DOCUMENTS_AT_ONCE,
    KEYS_AT_ONCE,
    DatabaseOptions,
    Field,
    Ids,
    VectorDatabase,
    Vectors,
    bytes_on_disk,
    chunks,
    is_remote,
    key_of,
    no_answer,
)

_QUERY_BYTES = 16 << 20
_TRANSIENT_STATUS = {408, 429, 500, 502, 503, 504}


@dataclass(frozen=True)
class QdrantOptions(DatabaseOptions):
    """The options of Qdrant, besides those of every database.

    Parameters
    ----------
    quantization
        ``"scalar"`` (8 bits per dimension) or ``"binary"`` (1 bit): Qdrant searches small
        copies in memory and scores the best ones again by the full vectors. By default None.
    oversampling
        With quantization, the number of candidates to score again, as a multiple of k.
    on_disk
        Whether Qdrant keeps the vectors on disk instead of in memory.
    hnsw, search
        Parameters of the graph (``{"m": 32, "ef_construct": 200}``) and of searches
        (``{"hnsw_ef": 256}``, ``{"exact": True}``).
    shards, replicas
        Number of shards and replicas of the collection. By default Qdrant chooses.
    """

    of_searches: ClassVar[frozenset[str]] = DatabaseOptions.of_searches | {"oversampling", "search"}

    quantization: Literal["scalar", "binary"] | None = None
    oversampling: float = 2.0
    on_disk: bool = False
    hnsw: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)
    shards: int | None = None
    replicas: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(or_none=True, shards=self.shards, replicas=self.replicas)
        if self.quantization not in (None, "scalar", "binary"):
            raise ValueError(f"quantization must be scalar or binary, got {self.quantization!r}")
        if self.oversampling < 1:
            raise ValueError(f"oversampling must be at least 1, got {self.oversampling}")


class QdrantDatabase(VectorDatabase):
    """A Qdrant collection whose points have the payload ``document`` (the id) and ``rows``.

    TLS is used for ``https://`` and always verified; ``SSL_CERT_FILE`` names the certificates of
    an authority of your own.
    """

    options_type = QdrantOptions
    token_variable = "QDRANT_API_KEY"
    embedded_suffix = ".qdrant"
    bytes_per_number = 24  # as JSON
    max_dimensions = 65_535  # as documented

    def __init__(
        self, uri: str, token: str | None, collection: str, options: QdrantOptions
    ) -> None:
        qdrant = library("qdrant")
        self.options = options
        self.embedded = not is_remote(uri)
        self._uri = uri
        self._collection = collection
        self._models = qdrant.models
        if self.embedded:
            place = {"location": uri} if uri == ":memory:" else {"path": uri}
            self._client = qdrant.QdrantClient(**place)
            # Its own destructor imports modules, which fails when Python ends.
            weakref.finalize(self, self._client.close)
        else:
            timeout = max(1, round(options.timeout))
            self._client = qdrant.QdrantClient(
                url=uri, api_key=token, timeout=timeout, check_compatibility=False
            )

    # --- the collection -----------------------------------------------------------------------

    def exists(self) -> bool:
        from qdrant_client.http.exceptions import ResponseHandlingException

        try:
            return bool(self._client.collection_exists(self._collection))
        except ResponseHandlingException as error:
            raise no_answer("Qdrant", self._uri, error) from error

    def open(self, dim: int, keeps_rows: bool) -> None:
        if self.exists():
            return
        models, options = self._models, self.options
        quantization = None
        if options.quantization == "scalar":
            scalar = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
            quantization = models.ScalarQuantization(scalar=scalar)
        elif options.quantization == "binary":
            binary = models.BinaryQuantizationConfig(always_ram=True)
            quantization = models.BinaryQuantization(binary=binary)
        self._client.create_collection(
            self._collection,
            vectors_config=models.VectorParams(
                size=dim, distance=models.Distance.DOT, on_disk=options.on_disk
            ),
            hnsw_config=models.HnswConfigDiff(**options.hnsw),
            quantization_config=quantization,
            shard_number=options.shards,
            replication_factor=options.replicas,
            on_disk_payload=True,
        )

    def drop(self) -> None:
        if self.exists():
            self._client.delete_collection(self._collection)

    def close(self) -> None:
        self._client.close()

    def settle(self) -> None:
        green = self._models.CollectionStatus.GREEN
        while self._client.get_collection(self._collection).status != green:
            time.sleep(0.5)

    # --- documents ----------------------------------------------------------------------------

    def upsert(self, ids: Ids, vectors: Vectors, rows: Sequence[bytes] | None) -> None:
        for document_id in ids:
            if isinstance(document_id, int) and not -(2**63) <= document_id < 2**63:
                raise ValueError(f"Qdrant takes integers of 64 bits, not the id {document_id}")
        payloads: list[dict[str, Any]] = [{"document": document_id} for document_id in ids]
        if rows is not None:
            for payload, row in zip(payloads, rows, strict=True):
                payload["rows"] = b64encode(row).decode()
        points = self._models.Batch(
            ids=[key_of(i) for i in ids], vectors=vectors.tolist(), payloads=payloads
        )
        self._client.upsert(self._collection, points, wait=True)

    def remove(self, ids: Ids) -> None:
        for part in chunks(ids, KEYS_AT_ONCE):
            points = self._models.PointIdsList(points=[key_of(i) for i in part])
            self._client.delete(self._collection, points, wait=True)

    def search(self, queries: Vectors, k: int, subset: Ids | None) -> list[Found]:
        models = self._models
        chosen = None
        if subset is not None:
            keys = [key_of(document_id) for document_id in subset]
            chosen = models.Filter(must=[models.HasIdCondition(has_id=keys)])
        found = []
        size = max(1, _QUERY_BYTES // (self.bytes_per_number * queries.shape[1]))
        for part in chunks(queries, size):
            requests = [
                models.QueryRequest(
                    query=query,
                    limit=k,
                    filter=chosen,
                    params=self._search_params(),
                    with_payload=["document"],
                )
                for query in part.tolist()
            ]
            for answer in self._client.query_batch_points(self._collection, requests):
                products = np.array([point.score for point in answer.points], np.float32)
                found.append(
                    Found([point.payload["document"] for point in answer.points], products)
                )
        return found

    def _search_params(self) -> Any:
        if self.embedded:  # it always scans, and warns about parameters
            return None
        models, options = self._models, self.options
        quantization = None
        if options.quantization is not None:
            quantization = models.QuantizationSearchParams(
                rescore=True, oversampling=options.oversampling
            )
        return models.SearchParams(quantization=quantization, **options.search)

    def fetch(self, ids: Ids, field: Field | None) -> Iterator[tuple[DocumentId, Any]]:
        for part in chunks(ids, DOCUMENTS_AT_ONCE if field else KEYS_AT_ONCE):
            for point in self._client.retrieve(
                self._collection,
                [key_of(document_id) for document_id in part],
                with_payload=["document", "rows"] if field == "rows" else ["document"],
                with_vectors=field == "vector",
            ):
                yield point.payload["document"], point.payload.get("rows", point.vector)

    def scan(self, batch_size: int) -> Iterator[tuple[list[DocumentId], Vectors]]:
        offset = None
        while True:
            points, offset = self._client.scroll(
                self._collection,
                limit=batch_size,
                offset=offset,
                with_payload=["document"],
                with_vectors=True,
            )
            if points:
                vectors = np.array([point.vector for point in points], np.float32)
                yield [point.payload["document"] for point in points], vectors
            if offset is None:
                return

    def count(self) -> int:
        return int(self._client.count(self._collection, exact=True).count)

    def nbytes(self) -> int | None:
        if not self.embedded:
            return None
        return 0 if self._uri == ":memory:" else bytes_on_disk(self._uri)

    def is_transient(self, error: Exception) -> bool:
        from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
        from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

        if isinstance(error, UnexpectedResponse):
            return error.status_code in _TRANSIENT_STATUS
        return isinstance(error, (ResponseHandlingException, ResourceExhaustedResponse))
