"""Vector databases that hold the documents of an index, on this machine or on others.

A database keeps the id and the vector of every document and, on request, the bytes to re-rank it
from. It knows nothing of tokens or projections: those stay with the index. No data leaves this
machine unless a uri names another one.
"""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit
from uuid import UUID, uuid5

import numpy as np
from numpy.typing import NDArray

from ...errors import check_positive
from ...storage import DocumentId
from ..registry import DATABASES, library, options_of, type_of
from ..results import Found

T = TypeVar("T", bound=Any)
Ids: TypeAlias = Sequence[DocumentId]
Vectors: TypeAlias = NDArray[np.float32]
Field = Literal["rows", "vector"]
KEYS_AT_ONCE, DOCUMENTS_AT_ONCE = 1000, 100
"""Numbers of documents to ask a database for in one request, without and with their contents."""
NAMES = tuple(DATABASES)
_NAMESPACE = UUID("f1c6b0f4-6a0e-5f0e-8d6a-2f5b1c1f0e11")  # of the keys of our documents


@dataclass(frozen=True)
class DatabaseOptions:
    """The options of every database.

    Parameters
    ----------
    collection
        Name of the collection in the database. By default the name of the index.
    timeout
        Seconds after which a request counts as failed.
    workers
        Number of parallel uploads. An embedded database gets one upload at a time.
    retries
        Number of further attempts after a temporary failure of an upload.
    """

    of_searches: ClassVar[frozenset[str]] = frozenset({"timeout", "workers", "retries"})

    collection: str | None = None
    timeout: float = 60.0
    workers: int = 4
    retries: int = 6

    def __post_init__(self) -> None:
        check_positive(workers=self.workers)
        if self.retries < 0:
            raise ValueError(f"retries must not be negative, got {self.retries}")
        if self.timeout <= 0:
            raise ValueError(f"timeout must be positive, got {self.timeout}")


class VectorDatabase(Protocol):
    """One collection of documents in a database, with the options ``options_type``.

    The uri is the address of the database, or the file or folder of an embedded one.
    """

    options_type: ClassVar[type[DatabaseOptions]]
    token_variable: ClassVar[str]
    embedded_suffix: ClassVar[str]
    bytes_per_number: ClassVar[int]
    max_dimensions: ClassVar[int]
    options: DatabaseOptions
    embedded: bool

    def __init__(self, uri: str, token: str | None, collection: str, options: Any) -> None: ...

    def exists(self) -> bool:
        """Return whether the database has the collection."""

    def open(self, dim: int, keeps_rows: bool) -> None:
        """Open the collection of vectors of dimension ``dim``; create it if it does not exist.

        ``keeps_rows``: documents have bytes beside their vectors.
        """

    def drop(self) -> None:
        """Delete the collection if it exists."""

    def close(self) -> None:
        """Close the connection."""

    def upsert(self, ids: Ids, vectors: Vectors, rows: Sequence[bytes] | None) -> None:
        """Add documents, or replace those with the same ids; a repeated call changes nothing.

        Ids are distinct; rows are the bytes of each document, if the collection keeps any.
        """

    def remove(self, ids: Ids) -> None:
        """Remove documents; unknown ids are ignored."""

    def search(self, queries: Vectors, k: int, subset: Ids | None) -> list[Found]:
        """Find the documents with the largest inner products for each of the queries (m, D)."""

    @abstractmethod
    def fetch(self, ids: Ids, field: Field | None) -> Iterator[tuple[DocumentId, Any]]:
        """Yield known ids, with the base64 of their bytes, with their vectors or with nothing."""

    def rows(self, ids: Ids) -> dict[DocumentId, bytes]:
        """Return the bytes of documents, without unknown ids."""
        return {document_id: b64decode(text) for document_id, text in self.fetch(ids, "rows")}

    def vectors(self, ids: Ids) -> dict[DocumentId, Vectors]:
        """Return the vectors (D,) of documents, without unknown ids."""
        return {i: np.array(vector, np.float32) for i, vector in self.fetch(ids, "vector")}

    def missing(self, ids: Ids) -> list[DocumentId]:
        """Return the ids that the collection does not hold, in their order."""
        held = {document_id for document_id, _ in self.fetch(ids, None)}
        return [document_id for document_id in ids if document_id not in held]

    def scan(self, batch_size: int) -> Iterator[tuple[list[DocumentId], Vectors]]:
        """Yield all ids and vectors (n, D) in batches."""

    def count(self) -> int:
        """Return the number of documents."""

    def nbytes(self) -> int | None:
        """Return the size of an embedded database on disk in bytes; None if it is unknown."""

    def settle(self) -> None:
        """Wait until the database has built its ANN structures over all documents."""

    def is_transient(self, error: Exception) -> bool:
        """Return whether the same request may succeed a little later."""


def connect(
    name: str,
    uri: str | None,
    token: str | None,
    default: str,
    options: Mapping[str, Any] | None = None,
) -> VectorDatabase:
    """Connect to the database ``name`` of the index at the path ``default``.

    By default the database is embedded and lies next to the index, and the token comes from the
    environment: ``MILVUS_TOKEN`` (``user:password`` or an API key) or ``QDRANT_API_KEY``. A token
    is never sent to an embedded database, and to other machines only with TLS.
    """
    kind: type[VectorDatabase] = type_of(name)
    chosen = options_of(name, options)
    library(name)
    if uri is not None and "@" in urlsplit(uri).netloc:
        host = urlsplit(uri).netloc.rpartition("@")[2]
        raise ValueError(
            f"the uri of {host} holds credentials: pass them as token= or set {kind.token_variable}"
        )
    uri = uri or default + kind.embedded_suffix
    collection = chosen.collection or collection_name(os.path.basename(default))
    if is_remote(uri):
        token = token or os.environ.get(kind.token_variable)
        if token and not _is_private(uri):
            raise ValueError(
                f"{urlsplit(uri).hostname} would get the credentials unencrypted: use https://, or "
                f"leave out token= and {kind.token_variable}"
            )
    return kind(uri, token, collection, chosen)


def no_answer(server: str, uri: str, reason: object) -> ConnectionError:
    """Return the error for a server that cannot be reached."""
    return ConnectionError(
        f"no {server} server answers at {uri} ({reason}): start it, or name another address with "
        "uri= (--uri)"
    )


def is_remote(uri: str) -> bool:
    """Return whether a uri names a remote database, not a file."""
    return "://" in uri


def _is_private(uri: str) -> bool:
    """Return whether nobody can listen: by TLS, or on this machine."""
    url = urlsplit(uri)
    if url.scheme == "https" or url.hostname == "localhost":
        return True
    with suppress(ValueError):
        return ip_address(url.hostname or "").is_loopback
    return False


def check_dimension(name: str, dim: int) -> None:
    """Raise an error if vectors are too long for a database."""
    limit = type_of(name).max_dimensions
    if dim > limit:
        d = (math.isqrt(8 * limit + 1) - 1) // 2  # the largest with d (d + 1) / 2 <= limit
        raise ValueError(
            f"{name} takes vectors of at most {limit:,} dimensions, not {dim:,}: shorten them "
            f"with projection=SVProjection.fit(vectors, dim={limit}), or the tokens with "
            f"token_projection=TokenProjection.fit(tokens, dim={d})"
        )


def bytes_on_disk(path: str) -> int:
    """Return the size of a file, or of all files in a folder."""
    place = Path(path)
    files = [place] if place.is_file() else place.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def collection_name(name: str) -> str:
    """Return a collection name that every database accepts.

    Examples
    --------
    >>> collection_name("eigenli-sv"), collection_name("2026")
    ('eigenli_sv', '_2026')
    """
    plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    return plain if plain[:1].isalpha() else f"_{plain}"


def chunks(items: T, size: int) -> Iterator[T]:
    """Yield consecutive parts of at most ``size`` items of a sequence or an array."""
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]


def key_of(document_id: DocumentId) -> str:
    """Return the UUID of a document id: always the same, and different for 1 and ``"1"``.

    Examples
    --------
    >>> key_of(1) == key_of(1), key_of(1) == key_of("1")
    (True, False)
    """
    kind = "str" if isinstance(document_id, str) else "int"
    return str(uuid5(_NAMESPACE, f"{kind}:{document_id}"))
