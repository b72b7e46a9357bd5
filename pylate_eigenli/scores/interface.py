"""The interface of PyLate's indexes, with and without PyLate.

If PyLate is installed, ``Base`` and ``RerankResult`` are its own, so that an index is one of its
indexes. Otherwise the classes below take their place. No other module asks which holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

__all__ = ["Base", "RerankResult"]


class Base:
    """Base class of all indexes, as ``pylate.indexes.base.Base``."""


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
