"""The interface of PyLate's indexes, with and without PyLate.

If PyLate is installed, ``Base`` and ``RerankResult`` are its own, so that an index is one of its
indexes. Otherwise the equal classes below take their place. No other module asks which holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypedDict

__all__ = ["Base", "RerankResult"]


class Base(ABC):
    """Base class of all indexes, as ``pylate.indexes.base.Base``."""

    @property
    @abstractmethod
    def is_end_to_end_index(self) -> bool:
        """Whether a search returns ranked documents, and not neighbours of each token."""

    @abstractmethod
    def __init__(self, name: str | None = None, recreate: bool = False) -> None: ...

    @abstractmethod
    def add_documents(
        self, documents_ids: Any, documents_embeddings: Any, batch_size: int
    ) -> Any: ...

    @abstractmethod
    def remove_documents(self, documents_ids: Any) -> Any: ...

    @abstractmethod
    def __call__(self, queries_embeddings: Any, k: int = 5) -> Any: ...

    @abstractmethod
    def get_documents_embeddings(self, documents_ids: Any) -> Any: ...


class RerankResult(TypedDict):
    """A document and its score, as ``pylate.rank.RerankResult``."""

    id: int | str
    score: float


if not TYPE_CHECKING:
    try:
        from pylate.indexes.base import Base
        from pylate.rank import RerankResult
    except ModuleNotFoundError as error:
        # PyLate without one of its own dependencies is a broken install, not a missing one.
        if error.name != "pylate":
            raise
