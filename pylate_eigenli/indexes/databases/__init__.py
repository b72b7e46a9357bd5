"""Vector databases that hold the documents of an index, on this machine or on others.

A server keeps, for every document, its id, its vector and, if asked to, the bytes of what it is
re-ranked from. It knows nothing of tokens or projections: those stay with the index. Nothing
leaves this machine unless a uri names another one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar
from urllib.parse import urlsplit
from uuid import UUID, uuid5

import numpy as np
from numpy.typing import NDArray

from ...storage import DocumentId
from ..registry import Entry, Registry, check_positive
from ..results import Found

_REGISTRY = Registry(
    __name__,
    "backend",
    {
        "milvus": Entry("MilvusDatabase", "pymilvus"),
        "qdrant": Entry("QdrantDatabase", "qdrant_client"),
    },
)
T = TypeVar("T", bound=Any)
NAMES = tuple(_REGISTRY.entries)
check = _REGISTRY.check
library = _REGISTRY.library
options_of_searches = _REGISTRY.options_of_searches
_NAMESPACE = UUID("f1c6b0f4-6a0e-5f0e-8d6a-2f5b1c1f0e11")  # of the keys of this library's documents


@dataclass(frozen=True)
class DatabaseOptions:
    """What all servers can be told.

    Parameters
    ----------
    collection
        Name of the collection on the server. By default that of the index.
    timeout
        Seconds after which a request counts as failed.
    workers
        Uploads at the same time. An embedded database always gets one after the other.
    retries
        How often to repeat an upload that failed for a reason that may pass.
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
    """One collection of documents on a server.

    Parameters
    ----------
    uri
        Where the server is, or the file or folder of an embedded one.
    token
        What the server wants to see before it answers.
    collection
        Name of the collection.
    options
        An instance of ``options_type``.
    """

    options_type: ClassVar[type[DatabaseOptions]]
    token_variable: ClassVar[str]
    embedded_suffix: ClassVar[str]
    bytes_per_number: ClassVar[int]
    options: DatabaseOptions
    embedded: bool

    def __init__(self, uri: str, token: str | None, collection: str, options: Any) -> None: ...

    def exists(self) -> bool:
        """Return whether the server has the collection."""

    def open(self, dim: int, keeps_rows: bool) -> None:
        """Make the collection ready, created if need be.

        Parameters
        ----------
        dim
            Dimension D of the vectors.
        keeps_rows
            Whether documents come with bytes beside their vectors.
        """

    def drop(self) -> None:
        """Delete the collection if it is there."""

    def close(self) -> None:
        """Let go of the connection."""

    def upsert(
        self,
        ids: Sequence[DocumentId],
        vectors: NDArray[np.float32],
        rows: Sequence[bytes] | None,
    ) -> None:
        """Add documents, or replace those of the same id; doing it again changes nothing.

        Parameters
        ----------
        ids
            All different.
        vectors
            Shape: (n, D).
        rows
            The bytes of each, if the collection keeps any.
        """

    def remove(self, ids: Sequence[DocumentId]) -> None:
        """Remove documents; those that are not there are ignored."""

    def search(
        self, queries: NDArray[np.float32], k: int, subset: Sequence[DocumentId] | None
    ) -> list[Found]:
        """Find the documents with the largest inner products for each of the queries (m, D)."""

    def rows(self, ids: Sequence[DocumentId]) -> dict[DocumentId, bytes]:
        """Return the bytes of those documents that are there."""

    def missing(self, ids: Sequence[DocumentId]) -> list[DocumentId]:
        """Return the ids that the collection does not hold, in their order."""

    def scan(self, batch_size: int) -> Iterator[tuple[list[DocumentId], NDArray[np.float32]]]:
        """Yield all ids and vectors (n, D) in batches."""

    def vectors(self, ids: Sequence[DocumentId]) -> dict[DocumentId, NDArray[np.float32]]:
        """Return the vectors (D,) of those documents that are there."""

    def count(self) -> int:
        """Return the number of documents."""

    def nbytes(self) -> int | None:
        """Return the bytes on disk of an embedded database; None where it is not known."""

    def settle(self) -> None:
        """Wait until the server has built its ANN structures over all documents."""

    def is_transient(self, error: Exception) -> bool:
        """Return whether the same request may succeed a little later."""


def connect(
    name: str,
    uri: str | None,
    token: str | None,
    default: str,
    options: Mapping[str, Any] | None = None,
) -> VectorDatabase:
    """Connect to a server.

    Parameters
    ----------
    name
        One of ``NAMES``.
    uri
        Where it is: ``https://host:port``, or a file or folder for an embedded database. By
        default an embedded one beside the index.
    token
        Credentials. By default from the environment: ``MILVUS_TOKEN`` (``user:password`` or an
        API key) or ``QDRANT_API_KEY``; never sent to an embedded database.
    default
        The path of the index, which names the collection and an embedded database.
    options
        What the ``options_type`` of the server takes, by name.
    """
    server: type[VectorDatabase] = _REGISTRY.type_of(name)
    chosen = _REGISTRY.options(name, options)
    library(name)
    if uri is not None and "@" in urlsplit(uri).netloc:
        host = urlsplit(uri).netloc.rpartition("@")[2]
        raise ValueError(
            f"the uri of {host} holds credentials: pass them as token= or set {server.token_variable}"
        )
    uri = uri or default + server.embedded_suffix
    collection = chosen.collection or collection_name(os.path.basename(default))
    if is_remote(uri):
        token = token or os.environ.get(server.token_variable)
    return server(uri, token, collection, chosen)


def is_remote(uri: str) -> bool:
    """Return whether a uri names a server rather than a file."""
    return "://" in uri


def bytes_on_disk(path: str) -> int:
    """Return the size of a file, or of all files in a folder."""
    place = Path(path)
    files = [place] if place.is_file() else place.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def collection_name(name: str) -> str:
    """Return a name that every server takes.

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
    """Return the UUID that stands for a document: always the same, other for 1 and ``"1"``.

    Examples
    --------
    >>> key_of(1) == key_of(1), key_of(1) == key_of("1")
    (True, False)
    """
    kind = "str" if isinstance(document_id, str) else "int"
    return str(uuid5(_NAMESPACE, f"{kind}:{document_id}"))
