"""Known-item search: finding a docstring by its first sentence, which is removed from it.

Known-item search is the usual substitute for relevance judgements. The first sentence of a docstring
is a summary by its author. It becomes a query; the only right answer is its docstring, indexed
without that sentence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..models.standard_library import Document, sample
from .beir import Collection

MIN_QUERY_WORDS = 5
MIN_REST_WORDS = 20

# A sentence ends at its full stop or with its paragraph: many summaries have no full stop.
_SENTENCE_END = re.compile(r"[.!?](?=\s+[A-Z`'\"(]|\s*$)|(?=\n\s*\n)", re.MULTILINE)
_SIGNATURE = re.compile(r"[\w.]+\(|.*->", re.DOTALL)


@dataclass(frozen=True)
class KnownItem:
    """A query, and the document that answers it, without the sentence that is the query."""

    query: str
    document: Document


def split_first_sentence(body: str) -> tuple[str, str] | None:
    """Split a docstring, without indentation, into its first sentence and what follows.

    None if it opens with something other than a sentence, like the signature of a built-in.

    Examples
    --------
    >>> split_first_sentence("Compress data in one shot. The level is 9 by default.")
    ('Compress data in one shot.', 'The level is 9 by default.')
    """
    end = _SENTENCE_END.search(body)
    if end is None:
        return None
    sentence, rest = " ".join(body[: end.end()].split()), body[end.end() :].strip()
    if not sentence[:1].isupper() or _SIGNATURE.match(sentence):
        return None
    return sentence, rest


def known_items(documents: Sequence[Document], size: int) -> list[KnownItem]:
    """Choose up to ``size`` known items among ``documents``, always the same ones.

    A document qualifies if its first sentence is at least ``MIN_QUERY_WORDS`` long and like
    no other's, and at least ``MIN_REST_WORDS`` remain without it.
    """
    split = {d.id: parts for d in documents if (parts := split_first_sentence(d.body)) is not None}
    occurrences = Counter(query for query, _ in split.values())
    items = {
        name: KnownItem(query, Document(name, rest))
        for name, (query, rest) in split.items()
        if len(query.split()) >= MIN_QUERY_WORDS
        and len(rest.split()) >= MIN_REST_WORDS
        and occurrences[query] == 1
    }
    chosen = sample([d for d in documents if d.id in items], size, salt="known items")
    return [items[document.id] for document in chosen]


def known_item_collection(documents: Sequence[Document], items: Sequence[KnownItem]) -> Collection:
    """Return documents, those of known items without their first sentence, as a collection."""
    corpus = {document.id: document.text for document in documents}
    return Collection(
        name="known items",
        corpus=corpus | {item.document.id: item.document.text for item in items},
        queries={item.document.id: item.query for item in items},
        qrels={item.document.id: {item.document.id: 1} for item in items},
        ignore_identical_ids=False,
    )
