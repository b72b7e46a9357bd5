"""Document ids: strings and integers, stored as one block of UTF-8 text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .ragged import Ragged, offsets_of

DocumentId: TypeAlias = str | int


def checked_id(document_id: object) -> DocumentId:
    """Return the id as a plain ``str`` or ``int``.

    Examples
    --------
    >>> checked_id(np.int64(7)), checked_id("7")
    (7, '7')
    """
    # The usual types come first, because this runs for every id of a collection.
    if type(document_id) is str or type(document_id) is int:
        return document_id
    if isinstance(document_id, str):
        return str.__str__(document_id)
    if isinstance(document_id, (int, np.integer)) and not isinstance(document_id, bool):
        return int(document_id)
    kind = type(document_id).__name__
    raise TypeError(f"a document id is a str or an int, not {kind}: {document_id!r}")


def checked_ids(documents_ids: Iterable[object]) -> list[DocumentId]:
    """Return ids as plain ``str`` or ``int``; raise an error for a single string."""
    if isinstance(documents_ids, (str, bytes)):
        raise TypeError(f"expected a list of document ids, not the single id {documents_ids!r}")
    return [checked_id(document_id) for document_id in documents_ids]


@dataclass(frozen=True, eq=False)
class IdColumn:
    """Encoded ids of consecutive documents, decoded only for the requested rows.

    Attributes
    ----------
    text
        One uint8 column ``"text"`` with the UTF-8 bytes of all ids; integers are decimal digits.
    is_integer
        bool of shape ``(n_documents,)``: true for an ``int``, false for a ``str``.

    Examples
    --------
    >>> column = IdColumn.encode(["doc", 7, "7"])
    >>> column.decode()
    ['doc', 7, '7']
    >>> column.decode(np.array([1]))
    [7]
    """

    text: Ragged
    is_integer: NDArray[np.bool_]

    @classmethod
    def encode(cls, documents_ids: Sequence[DocumentId]) -> IdColumn:
        """Encode ids from :func:`checked_ids`."""
        encoded = [_encoded(document_id) for document_id in documents_ids]
        text = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        integers = [not isinstance(document_id, str) for document_id in documents_ids]
        offsets = offsets_of([len(one) for one in encoded])
        return cls(Ragged({"text": text}, offsets), np.array(integers, dtype=bool))

    @classmethod
    def concatenate(cls, parts: Sequence[IdColumn]) -> IdColumn:
        """Return the ids of all parts, as a copy."""
        return cls(
            Ragged.concatenate([part.text for part in parts]),
            np.concatenate([part.is_integer for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.text)

    def span(self, start: int, stop: int) -> IdColumn:
        """Return the ids of documents ``start:stop``, without copying their text."""
        return IdColumn(self.text.span(start, stop), self.is_integer[start:stop])

    def take(self, keep: NDArray[np.bool_]) -> IdColumn:
        """Return the ids where the mask ``keep`` is true."""
        return IdColumn(self.text.take(keep), self.is_integer[keep])

    def decode(self, rows: NDArray[np.int64] | None = None) -> list[DocumentId]:
        """Return the ids of ``rows``, in this order; by default all ids."""
        text = self.text.columns["text"].data
        starts, ends, integers = self.text.offsets[:-1], self.text.offsets[1:], self.is_integer
        if rows is not None:
            starts, ends, integers = starts[rows], ends[rows], integers[rows]
        strings = [
            str(text[start:end], "utf-8")
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        if not integers.any():
            return list(strings)
        return [
            int(string) if integer else string
            for string, integer in zip(strings, integers.tolist(), strict=True)
        ]


def _encoded(document_id: DocumentId) -> bytes:
    try:
        return str(document_id).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(
            f"document id {document_id!r} is not valid Unicode: it contains a lone surrogate"
        ) from None
