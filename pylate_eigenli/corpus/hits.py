"""What a search by texts has found, as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..storage import DocumentId
from .text_store import TextDocument, snippet


@dataclass(frozen=True)
class Hit:
    """A document that was found.

    Parameters
    ----------
    id, score
        What the index says.
    title, snippet
        Of its text; empty if that is not known.
    contributions
        What each token of the query adds to the score, if it was asked for. Shape: (tokens,).

    Examples
    --------
    >>> Hit("apple", 1.5, title="Fruit").title
    'Fruit'
    """

    id: DocumentId
    score: float
    title: str = ""
    snippet: str = ""
    contributions: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Answer:
    """The documents found for a query, best first, and the query's tokens if it was a text.

    Examples
    --------
    >>> [hit.id for hit in Answer([Hit("apple", 1.5), Hit("pear", 1.2)], ["fruit"]).hits]
    ['apple', 'pear']
    """

    hits: list[Hit]
    tokens: list[str] | None = None


def described(
    hit: Any,
    texts: Mapping[DocumentId, TextDocument],
    query: str,
    contributions: NDArray[np.float32] | None,
) -> Hit:
    """Return a result of an index with the title and the part of its text that answer a query."""
    document = texts.get(hit["id"])
    if document is None:
        return Hit(hit["id"], hit["score"], contributions=contributions)
    part = snippet(document.text, query)
    return Hit(hit["id"], hit["score"], document.title, part, contributions)
