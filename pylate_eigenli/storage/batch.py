"""Batch: documents in memory, on their way to or from wherever they are kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .columns import Array, storable
from .ids import DocumentId, EncodedIds, offsets_of


class ColumnType(NamedTuple):
    """The type of a column: one entry per ``"document"`` or ``"row"``, with a dtype and a shape."""

    per: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)} per {self.per}"


Schema: TypeAlias = Mapping[str, ColumnType]


@dataclass(frozen=True, eq=False)
class Batch:
    """Documents with their ids and columns.

    Attributes
    ----------
    document_ids
        The ids of the ``n`` documents.
    documents
        Arrays of shape ``(n, ...)`` by name: one entry per document.
    rows
        Arrays of shape ``(offsets[-1], ...)`` by name: a run of rows per document.
    offsets
        int64 of shape ``(n + 1,)``: document ``i`` owns the rows ``offsets[i]:offsets[i + 1]``.
    """

    document_ids: Sequence[DocumentId]
    documents: Mapping[str, Array]
    rows: Mapping[str, Array]
    offsets: NDArray[np.int64]

    @classmethod
    def checked(
        cls,
        ids: Sequence[DocumentId],
        documents: Mapping[str, object],
        rows: Mapping[str, object],
        lengths: ArrayLike | None,
    ) -> Batch:
        """Return a batch of arrays given by a caller, after checking that they fit together."""
        if shared := documents.keys() & rows.keys():
            raise ValueError(f"column {min(shared)!r} is given both per document and per row")
        counts = _checked_lengths(lengths, len(ids), rows)
        n_rows = int(counts.sum())
        per_document = _checked_columns(documents, len(ids), f"{len(ids)} documents")
        per_row = _checked_columns(rows, n_rows, f"lengths that sum to {n_rows}")
        batch = cls(ids, per_document, per_row, offsets_of(counts))
        batch.costs  # noqa: B018  # refuses ids that cannot be encoded
        return batch

    @classmethod
    def concatenate(cls, parts: Sequence[Batch]) -> Batch:
        """Return the documents of all parts, at least one, of the same columns."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            [document_id for part in parts for document_id in part.document_ids],
            {n: np.concatenate([part.documents[n] for part in parts]) for n in parts[0].documents},
            {n: np.concatenate([part.rows[n] for part in parts]) for n in parts[0].rows},
            offsets_of(np.concatenate([np.diff(part.offsets) for part in parts])),
        )

    def __len__(self) -> int:
        return len(self.document_ids)

    def has(self, name: str) -> bool:
        """Return whether there is a column of this name."""
        return name in self.documents or name in self.rows

    def column(self, name: str) -> Array:
        """Return a column: one entry per document, or per row."""
        return self.documents[name] if name in self.documents else self.rows[name]

    def ids(self, rows: NDArray[np.int64] | None = None) -> list[DocumentId]:
        """Return the ids of the documents at ``rows``, by default of all."""
        chosen = range(len(self)) if rows is None else rows.tolist()
        return [self.document_ids[row] for row in chosen]

    @property
    def schema(self) -> Schema:
        """The type of every column."""
        return {
            name: ColumnType(per, column.dtype, column.shape[1:])
            for per, columns in (("document", self.documents), ("row", self.rows))
            for name, column in columns.items()
        }

    @cached_property
    def costs(self) -> NDArray[np.int64]:
        """The bytes of each document in a segment, int64 of shape ``(n,)``."""
        offset_bytes = self.offsets.itemsize
        ids = np.diff(EncodedIds.encode(self.document_ids).offsets)
        costs = ids + offset_bytes + _entry_bytes(self.documents)
        if self.rows:
            costs += np.diff(self.offsets) * _entry_bytes(self.rows) + offset_bytes
        return costs

    def take(self, positions: NDArray[np.int64]) -> Batch:
        """Return a copy of the documents at ``positions``."""
        columns = take_columns(self.documents, self.rows, self.offsets, positions)
        return Batch(self.ids(positions), *columns)


def take_columns(
    documents: Mapping[str, Array],
    rows: Mapping[str, Array],
    offsets: NDArray[np.int64],
    positions: NDArray[np.int64],
) -> tuple[dict[str, Array], dict[str, Array], NDArray[np.int64]]:
    """Return copies of both kinds of columns with the documents at ``positions``, and offsets."""
    lengths = np.diff(offsets)[positions]
    taken = offsets_of(lengths)
    row_numbers = np.arange(taken[-1]) + np.repeat(offsets[positions] - taken[:-1], lengths)
    return (
        {name: column[positions] for name, column in documents.items()},
        {name: column[row_numbers] for name, column in rows.items()},
        taken,
    )


def check_same_schema(given: Schema, held: Schema) -> None:
    """Raise a ``ValueError`` that names the first column in which two schemas differ."""
    for name, column_type in given.items():
        if name not in held:
            raise ValueError(f"column {name!r} is new: the index holds {_listed(held)}")
        if column_type != held[name]:
            raise ValueError(
                f"column {name!r} is {column_type}, but in the index it is {held[name]}"
            )
    for name in held:
        if name not in given:
            raise ValueError(f"column {name!r} is missing: the index holds {_listed(held)}")


def _listed(schema: Schema) -> str:
    return ", ".join(f"{name!r} ({kind})" for name, kind in schema.items()) or "no columns"


def _entry_bytes(columns: Mapping[str, Array]) -> int:
    return sum(array.itemsize * math.prod(array.shape[1:]) for array in columns.values())


def _checked_columns(columns: Mapping[str, object], length: int, what: str) -> dict[str, Array]:
    checked = {}
    for name, values in columns.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"a column name is a non-empty str, not {name!r}")
        array = storable(values, f"column {name!r}")
        if array.shape[:1] != (length,):
            raise ValueError(f"column {name!r} has shape {array.shape} for {what}")
        checked[name] = array
    return checked


def _checked_lengths(
    lengths: ArrayLike | None, n_documents: int, rows: Mapping[str, object]
) -> NDArray[np.int64]:
    if lengths is None and not rows:
        return np.zeros(n_documents, dtype=np.int64)
    if lengths is None:
        raise ValueError(f"columns per row ({', '.join(map(repr, rows))}) need lengths")
    if not rows:
        raise ValueError("lengths are given, but no columns per row")
    counts = np.asarray(lengths)
    if counts.shape != (n_documents,):
        raise ValueError(f"lengths have shape {counts.shape} for {n_documents} documents")
    if counts.size and (counts.dtype.kind not in "iu" or counts.min() < 0):
        raise ValueError("lengths must be non-negative integers")
    return counts.astype(np.int64)
