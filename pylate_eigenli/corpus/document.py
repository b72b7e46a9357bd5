"""Document: a text or a page, as its reader sees it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..storage import DocumentId
from .metadata import Value

_LETTERS_READ = 1_000_000


@dataclass(frozen=True)
class Document:
    """A text or a page, as its reader sees it.

    Parameters
    ----------
    id
        A string or an integer.
    text, title
        Shown in results; a page has no text.
    file, page
        The file it was read from, relative to the folder that was read, and the number of its page,
        from 1 on; None if the file has no pages.
    fingerprint
        Changes with the file of the document; empty without a file.
    metadata
        Strings, numbers and booleans by name, to filter searches by.

    Examples
    --------
    >>> Document(7, "Apples are red.", title="Fruit").whole
    'Fruit\\nApples are red.'
    """

    id: DocumentId
    text: str = ""
    title: str = ""
    file: str | None = None
    page: int | None = None
    fingerprint: str = ""
    metadata: Mapping[str, Value] = field(default_factory=dict, hash=False)

    @property
    def whole(self) -> str:
        """The text that the model reads: the title, if any, then the text.

        No model reads as far as it is cut off, but tokenizers take 30 bytes per letter to find out.
        """
        text = self.text[:_LETTERS_READ]
        return f"{self.title[:_LETTERS_READ]}\n{text}" if self.title else text


def content_id(title: str, text: str, metadata: Mapping[str, Value]) -> str:
    """Return an id made from the contents of a document.

    Examples
    --------
    >>> content_id("Fruit", "Apples are red.", {})
    '61bee0736402d260'
    """
    content = json.dumps([title, text, sorted(metadata.items())]).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def valid(text: str) -> str:
    """Replace halves of surrogate pairs, which JSON can spell but no tokenizer reads."""
    return text.encode("utf-8", "replace").decode("utf-8")
