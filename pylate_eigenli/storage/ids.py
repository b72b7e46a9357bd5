"""Document ids: strings and integers, stored as one block of UTF-8 text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


def offsets_of(lengths: ArrayLike) -> NDArray[np.int64]:
    """Return the offsets of runs of these lengths: the start of each, and the end of the last."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


@dataclass(frozen=True, eq=False)
class EncodedIds:
    """Encoded ids of consecutive documents, decoded only for the requested rows.

    Attributes
    ----------
    text
        uint8: the UTF-8 bytes of all ids; integers are decimal digits.
    offsets
        Id ``i`` has the bytes ``offsets[i]:offsets[i + 1]``; int64 of shape ``(n + 1,)``.
    is_integer
        bool of shape ``(n,)``: true for an ``int``, false for a ``str``.

    Examples
    --------
    >>> EncodedIds.encode(["doc", 7, "7"]).decode(np.array([2, 1]))
    ['7', 7]
    """

    text: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    is_integer: NDArray[np.bool_]

    @classmethod
    def encode(cls, documents_ids: Sequence[DocumentId]) -> EncodedIds:
        """Encode ids from :func:`checked_ids`."""
        encoded = [_encoded(document_id) for document_id in documents_ids]
        integers = [not isinstance(document_id, str) for document_id in documents_ids]
        return cls(
            np.frombuffer(b"".join(encoded), dtype=np.uint8),
            offsets_of([len(one) for one in encoded]),
            np.array(integers, dtype=bool),
        )

    def decode(self, rows: NDArray[np.int64] | None = None) -> list[DocumentId]:
        """Return the ids of ``rows``, in this order; by default all ids."""
        text, chosen = self.text.data, slice(None) if rows is None else rows
        bounds = (self.offsets[:-1][chosen].tolist(), self.offsets[1:][chosen].tolist())
        strings = [str(text[start:end], "utf-8") for start, end in zip(*bounds, strict=True)]
        return [
            int(string) if integer else string
            for string, integer in zip(strings, self.is_integer[chosen].tolist(), strict=True)
        ]


def _encoded(document_id: DocumentId) -> bytes:
    try:
        return str(document_id).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(
            f"document id {document_id!r} is not valid Unicode: it contains a lone surrogate"
        ) from None
