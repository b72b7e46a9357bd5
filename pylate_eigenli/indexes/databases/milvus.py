"""Milvus: the uri chooses between Milvus Lite (embedded), one server and a cluster."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from ...errors import check_choice, check_positive
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

Consistency = Literal["Strong", "Bounded", "Session", "Eventually"]

# Milvus' limits: bytes of one text, and results of one query.
_TEXT_BYTES = 65_535
_MOST_RESULTS = 16_384
_ID_BYTES = 1_024
_METRIC = "IP"  # inner products are the scores
# The bytes of a document are kept as base64, divided among these text fields in order.
_ROW_FIELDS = [f"rows_{i}" for i in range(4)]
_QUERY_BYTES = 16 << 20
# Not ready, unavailable, too many requests, rate limit, (not) yet loaded, no leader, no node.
_TRANSIENT_CODES = {1, 2, 4, 8, 101, 103, 401, 503, 901, 902}
_NO_ANSWER = 2
# Number of indexes of this process that use an embedded database: the last one closes it.
_EMBEDDED_USERS: Counter[str] = Counter()


@dataclass(frozen=True)
class MilvusOptions(DatabaseOptions):
    """The options of Milvus, besides those of every database.

    Parameters
    ----------
    database
        Name of the Milvus database that holds the collection.
    index_type
        The ANN structure, by Milvus' names: ``"AUTOINDEX"`` (the default), ``"FLAT"``,
        ``"HNSW"``, ``"IVF_SQ8"``, ``"IVF_PQ"``, ``"DISKANN"`` ...
    index_params, search_params
        Parameters of the structure (``{"M": 32}``) and of searches (``{"ef": 200}``).
    shards, replicas
        Number of shards of the collection, and of its copies in memory.
    consistency
        ``"Strong"`` (the default): a search sees all earlier writes. ``"Bounded"``,
        ``"Session"`` and ``"Eventually"`` are faster.
    """

    of_searches: ClassVar[frozenset[str]] = DatabaseOptions.of_searches | {
        "search_params",
        "consistency",
    }

    database: str = ""
    index_type: str = "AUTOINDEX"
    index_params: dict[str, Any] = field(default_factory=dict)
    search_params: dict[str, Any] = field(default_factory=dict)
    shards: int = 1
    replicas: int = 1
    consistency: Consistency = "Strong"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(shards=self.shards, replicas=self.replicas)
        check_choice("consistency", self.consistency, get_args(Consistency))


class MilvusDatabase(VectorDatabase):
    """A Milvus collection with the fields ``key``, ``document`` (the id as JSON) and ``vector``.

    TLS is used for ``https://`` and always verified; ``GRPC_DEFAULT_SSL_ROOTS_FILE_PATH`` names
    the certificates of an authority of your own.
    """

    options_type = MilvusOptions
    token_variable = "MILVUS_TOKEN"
    embedded_suffix = ".milvus.db"
    bytes_per_number = 4
    max_dimensions = 32_768  # as documented

    def __init__(
        self, uri: str, token: str | None, collection: str, options: MilvusOptions
    ) -> None:
        if not is_remote(uri) and not uri.endswith(".db"):
            raise ValueError(
                f"uri must be http(s)://host:port or a file that ends in .db, got {uri!r}"
            )
        self.options = options
        self.embedded = not is_remote(uri)
        self._collection = collection
        self._keeps_rows = False
        self._file = str(Path(uri).absolute())
        if self.embedded:
            Path(self._file).parent.mkdir(parents=True, exist_ok=True)
            uri = self._file
        try:
            self._client = library("milvus").MilvusClient(
                uri=uri, token=token or "", db_name=options.database, timeout=options.timeout
            )
        except library("milvus").MilvusException as error:
            if error.code != _NO_ANSWER:
                raise
            raise no_answer("Milvus", uri, error.message) from error
        if self.embedded:
            _EMBEDDED_USERS[self._file] += 1

    # --- the collection -----------------------------------------------------------------------

    def exists(self) -> bool:
        return bool(self._client.has_collection(self._collection, timeout=self.options.timeout))

    def open(self, dim: int, keeps_rows: bool) -> None:
        self._keeps_rows = keeps_rows
        # A process may have been killed after any of these steps.
        if not self.exists():
            self._create(dim)
        if not self._client.list_indexes(self._collection, "vector"):
            index = self._client.prepare_index_params()
            index.add_index(
                "vector",
                index_type=self.options.index_type,
                metric_type=_METRIC,
                params=self.options.index_params,
            )
            self._client.create_index(self._collection, index)
        self._client.load_collection(self._collection, replica_number=self.options.replicas)

    def _create(self, dim: int) -> None:
        types = library("milvus").DataType
        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", types.VARCHAR, is_primary=True, max_length=36)
        schema.add_field("document", types.VARCHAR, max_length=_ID_BYTES)
        schema.add_field("vector", types.FLOAT_VECTOR, dim=dim)
        for name in _ROW_FIELDS if self._keeps_rows else []:
            schema.add_field(name, types.VARCHAR, max_length=_TEXT_BYTES)
        self._client.create_collection(
            self._collection,
            schema=schema,
            num_shards=self.options.shards,
            consistency_level=self.options.consistency,
            timeout=self.options.timeout,
        )

    def drop(self) -> None:
        if self.exists():
            self._client.drop_collection(self._collection, timeout=self.options.timeout)

    def close(self) -> None:
        self._client.close()
        if self.embedded:
            _EMBEDDED_USERS[self._file] -= 1
            if not _EMBEDDED_USERS[self._file]:
                from milvus_lite.server_manager import server_manager_instance

                server_manager_instance.release_server(self._file)

    def settle(self) -> None:
        self._client.flush(self._collection)
        while self._client.describe_index(self._collection, "vector").get("pending_index_rows"):
            time.sleep(0.5)

    # --- documents ----------------------------------------------------------------------------

    def upsert(self, ids: Ids, vectors: Vectors, rows: Sequence[bytes] | None) -> None:
        entities = [
            {"key": key_of(i), "document": _document(i), "vector": vector}
            for i, vector in zip(ids, vectors, strict=True)
        ]
        if rows is not None:
            for entity, row in zip(entities, rows, strict=True):
                entity |= _texts(entity["document"], row)
        self._client.upsert(self._collection, entities, timeout=self.options.timeout)

    def remove(self, ids: Ids) -> None:
        for part in chunks(ids, KEYS_AT_ONCE):
            self._client.delete(
                self._collection, ids=[key_of(i) for i in part], timeout=self.options.timeout
            )

    def search(self, queries: Vectors, k: int, subset: Ids | None) -> list[Found]:
        if k > _MOST_RESULTS:
            raise ValueError(f"Milvus returns at most {_MOST_RESULTS:,} documents, not {k:,}")
        found = []
        for part in chunks(queries, max(1, _QUERY_BYTES // (4 * queries.shape[1]))):
            answers = self._client.search(
                self._collection,
                data=list(part),
                anns_field="vector",
                filter="" if subset is None else _filter(subset),
                limit=k,
                output_fields=["document"],
                search_params={"metric_type": _METRIC, "params": self.options.search_params},
                consistency_level=self.options.consistency,
                timeout=self.options.timeout,
            )
            for hits in answers:
                products = np.array([hit["distance"] for hit in hits], np.float32)
                found.append(Found([json.loads(h["entity"]["document"]) for h in hits], products))
        return found

    def fetch(self, ids: Ids, field: Field | None) -> Iterator[tuple[DocumentId, Any]]:
        names = {"rows": _ROW_FIELDS, "vector": ["vector"], None: []}[field]
        for part in chunks(ids, DOCUMENTS_AT_ONCE if field else KEYS_AT_ONCE):
            for entity in self._client.query(
                self._collection,
                filter=_filter(part),
                output_fields=["document", *names],
                consistency_level=self.options.consistency if field else "Strong",
                timeout=self.options.timeout,
            ):
                text = "".join(entity[name] for name in names) if field == "rows" else None
                yield (
                    json.loads(entity["document"]),
                    entity["vector"] if field == "vector" else text,
                )

    def scan(self, batch_size: int) -> Iterator[tuple[list[DocumentId], Vectors]]:
        entities = self._client.query_iterator(
            self._collection,
            batch_size=min(batch_size, _MOST_RESULTS),
            output_fields=["document", "vector"],
            consistency_level="Strong",
        )
        while batch := entities.next():
            ids = [json.loads(entity["document"]) for entity in batch]
            yield ids, np.array([entity["vector"] for entity in batch], np.float32)
        entities.close()

    def count(self) -> int:
        (answer,) = self._client.query(
            self._collection,
            filter="",
            output_fields=["count(*)"],
            consistency_level="Strong",
            timeout=self.options.timeout,
        )
        return int(answer["count(*)"])

    def nbytes(self) -> int | None:
        return bytes_on_disk(self._file) if self.embedded else None

    def is_transient(self, error: Exception) -> bool:
        import grpc

        if isinstance(error, grpc.RpcError):
            return True
        if not isinstance(error, library("milvus").MilvusException):
            return False
        return isinstance(error.code, grpc.StatusCode) or error.code in _TRANSIENT_CODES


def _document(document_id: DocumentId) -> str:
    text = json.dumps(document_id, ensure_ascii=False)
    if len(text.encode()) > _ID_BYTES:
        raise ValueError(f"Milvus takes ids of up to {_ID_BYTES - 2} bytes, not {text[:60]}...")
    return text


def _filter(ids: Ids) -> str:
    return f"key in {json.dumps([key_of(i) for i in ids])}"


def _texts(document: str, row: bytes) -> dict[str, str]:
    """Divide the bytes of a document among the fields."""
    text = b64encode(row).decode()
    if len(text) > _TEXT_BYTES * len(_ROW_FIELDS):
        most = _TEXT_BYTES * len(_ROW_FIELDS) * 3 // 4
        raise ValueError(
            f"document {document} has {len(row):,} bytes of tokens or bases, and Milvus takes "
            f"{most:,}: keep fewer with keep_bases=True instead of keep_tokens, or give tokens_of"
        )
    return {
        name: text[i * _TEXT_BYTES : (i + 1) * _TEXT_BYTES] for i, name in enumerate(_ROW_FIELDS)
    }
