"""Batch: documents in memory, before they are written to a segment or after they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .columns import storable
from .ids import DocumentId, IdColumn
from .ragged import Array, Ragged, offsets_of


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
    ids
        The ids of the ``n`` documents.
    documents
        Arrays of shape ``(n, ...)`` by name: one entry per document.
    rows
        Arrays of shape ``(n_rows, ...)`` by name: a run of rows per document.
    """

    ids: IdColumn
    documents: Mapping[str, Array]
    rows: Ragged

    @classmethod
    def build(
        cls,
        ids: Sequence[DocumentId],
        documents: Mapping[str, object],
        rows: Mapping[str, object],
        lengths: object | None,
    ) -> Batch:
        """Return a batch of arrays given by a caller, after checking that they fit together."""
        if shared := documents.keys() & rows.keys():
            raise ValueError(f"column {min(shared)!r} is given both per document and per row")
        counts = _checked_lengths(lengths, len(ids), rows)
        n_rows = int(counts.sum())
        per_document = _checked_columns(documents, len(ids), f"{len(ids)} documents")
        per_row = _checked_columns(rows, n_rows, f"lengths that sum to {n_rows}")
        return cls(IdColumn.encode(ids), per_document, Ragged(per_row, offsets_of(counts)))

    @classmethod
    def concatenate(cls, batches: Sequence[Batch]) -> Batch:
        """Return the documents of all batches, as a copy."""
        return cls(
            IdColumn.concatenate([batch.ids for batch in batches]),
            {
                name: np.concatenate([batch.documents[name] for batch in batches])
                for name in batches[0].documents
            },
            Ragged.concatenate([batch.rows for batch in batches]),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def schema(self) -> Schema:
        """The type of every column."""
        return {
            name: ColumnType(per, column.dtype, column.shape[1:])
            for per, columns in (("document", self.documents), ("row", self.rows.columns))
            for name, column in columns.items()
        }

    def costs(self) -> NDArray[np.int64]:
        """Return the bytes of each document in a segment, int64 of shape ``(n,)``."""
        offset_bytes = self.rows.offsets.itemsize
        costs = self.ids.text.lengths + offset_bytes + _entry_bytes(self.documents)
        if self.rows.columns:
            costs += self.rows.lengths * _entry_bytes(self.rows.columns) + offset_bytes
        return costs

    def span(self, start: int, stop: int) -> Batch:
        """Return the documents ``start:stop``, without copying their columns."""
        documents = {name: column[start:stop] for name, column in self.documents.items()}
        return Batch(self.ids.span(start, stop), documents, self.rows.span(start, stop))

    def take(self, keep: NDArray[np.bool_]) -> Batch:
        """Return the documents where the mask ``keep``, of shape ``(n,)``, is true."""
        documents = {name: column[keep] for name, column in self.documents.items()}
        return Batch(self.ids.take(keep), documents, self.rows.take(keep))


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
    lengths: object | None, n_documents: int, rows: Mapping[str, object]
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
