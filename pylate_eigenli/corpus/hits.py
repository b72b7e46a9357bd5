"""Search results with titles and snippets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..storage import DocumentId
from .document import Document
from .metadata import Value

# Thai, Lao, Myanmar, Khmer, kana, Han and Hangul: no spaces, so that each character is a term.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_TERM = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_WIDTH = 240  # characters
_SEARCHED = 1_000_000  # characters of a text in which a snippet is looked for
_PLACES = 200  # where a snippet may begin: in a long text some words are everywhere


@dataclass(frozen=True)
class Hit:
    """A document that was found.

    Parameters
    ----------
    id, score
        As the index returns them.
    text, title
        Text and title of the document; empty if the catalogue has none.
    snippet
        The part of the text with the most words of the query.
    metadata
        What was given with the document.
    file, page
        The file it was read from, and the number of its page; None if there is none.
    share
        The share of the query that the document explains: the score divided by the highest score
        that any document could have. It is 1 for the whole query; 0 or less, with background
        subtraction, for no more than a document explains of any query.
    contributions
        Contribution of each query token to the score, if requested. Shape: (tokens,).

    Examples
    --------
    >>> Hit("apple", 1.5, title="Fruit").title
    'Fruit'
    """

    id: DocumentId
    score: float
    text: str = ""
    title: str = ""
    snippet: str = ""
    metadata: Mapping[str, Value] = field(default_factory=dict, hash=False)
    file: str | None = None
    page: int | None = None
    share: float = 0.0
    contributions: NDArray[np.float32] | None = None


def by_file(hits: Iterable[Hit]) -> list[list[Hit]]:
    """Return hits with those of one file together, in the order of the best of each file.

    Examples
    --------
    >>> hits = [Hit("a.txt#2", 3.0, file="a.txt"), Hit("b", 2.0), Hit("a.txt#1", 1.0, file="a.txt")]
    >>> [[hit.id for hit in group] for group in by_file(hits)]
    [['a.txt#2', 'a.txt#1'], ['b']]
    """
    groups: dict[object, list[Hit]] = {}
    for hit in hits:
        groups.setdefault(hit.file or (hit.id,), []).append(hit)
    return list(groups.values())


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


def hit_of(
    document: Document,
    score: float,
    share: float,
    query: str | None,
    contributions: NDArray[np.float32] | None = None,
) -> Hit:
    """Return a document that was found, with the part of its text that suits the query."""
    return Hit(
        document.id,
        score,
        document.text,
        document.title,
        snippet(document.text, query or ""),
        document.metadata,
        document.file,
        document.page,
        share,
        contributions,
    )


def snippet(text: str, query: str, width: int = _WIDTH) -> str:
    """Return the part of a text, of about ``width`` characters, with the most words of a query.

    Examples
    --------
    >>> snippet("The sky is blue. Most apples that grow here are red.", "red apples", width=30)
    '… Most apples that grow here …'
    """
    text = " ".join(text[:_SEARCHED].split())
    if len(text) <= width:
        return text
    wanted = {word.lower() for word in _TERM.findall(query)}
    words = [(match.start(), match.group().lower()) for match in _TERM.finditer(text)]
    places = [(start, word) for start, word in words if word in wanted][:_PLACES]

    def distinct_from(begin: int) -> int:
        return len({word for start, word in places if begin <= start < begin + width})

    best = max((start for start, _ in places), key=distinct_from, default=0)
    # Begin a few words before the first match, for context.
    begin = 0 if best < width // 4 else _space_before(text, best - width // 8, width // 4)
    end = begin + width
    if end < len(text):
        end = _space_before(text, end, width // 4)
    return f"{'… ' if begin else ''}{text[begin:end].strip()}{' …' if end < len(text) else ''}"


def _space_before(text: str, position: int, reach: int) -> int:
    """Return the end of the last space before a position; the position itself if none is near."""
    space = text.rfind(" ", max(position - reach, 0), position)
    return position if space < 0 else space + 1
