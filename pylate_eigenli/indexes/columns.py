"""The columns of documents: the only module that knows their names.

=================  ============  ===================================================================
``basis``          per row       directions of the document's subspace, by ``EigenLIIndex`` or
                                 ``keep_bases``
``floor``          per document  what the subspace gives to all other directions
``token``          per row       token embeddings, by ``keep_tokens``
``vector``         per document  the single vector, floats or codes
``vector_along``   per document  what a code leaves along the axis
``vector_row``     per document  what a code leaves in the row of the mean token
``label``          per document  a number that grows and is never used again
=================  ============  ===================================================================

Columns of integers have their scales beside them, in ``<name>_scale``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from ..spectral.subspace import Subspaces
from ..storage import DocumentId, Segment
from ..storage.batch import Batch
from ..tokens import TokenBatch, offsets_of, place_of
from ..vectors.quantization import Codes, StoredVectors, VectorDtype
from ..vectors.rows import RowDtype, StoredRows

_BASIS, _FLOOR, _TOKEN, _LABEL = "basis", "floor", "token", "label"
_VECTOR, _ALONG, _ROW = "vector", "vector_along", "vector_row"


class Rows(Protocol):
    """Documents with named columns: those of a segment, or some that were fetched."""

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Document i owns the rows ``offsets[i]:offsets[i + 1]`` of columns per row."""

    def has(self, name: str) -> bool:
        """Return whether there is a column of that name."""

    def column(self, name: str) -> NDArray[Any]:
        """Return a column: one entry per document, or per row."""

    def ids(self, rows: NDArray[np.int64] | None = None) -> list[DocumentId]:
        """Return the ids of the documents at ``rows``, by default of all."""


Part: TypeAlias = tuple[Rows, slice | NDArray[np.int64]]
"""Documents, and which of them are meant."""


# --- writing ------------------------------------------------------------------------------------


def of_subspaces(ids: Sequence[DocumentId], subspaces: Subspaces, dtype: RowDtype) -> Batch:
    """Return the columns of subspaces."""
    rows = _row_columns(_BASIS, StoredRows.encode(subspaces.rows, dtype))
    floors = subspaces.floors.float().cpu().numpy()
    return Batch(ids, {_FLOOR: floors}, rows, subspaces.offsets)


def of_tokens(ids: Sequence[DocumentId], tokens: TokenBatch, dtype: RowDtype) -> Batch:
    """Return the columns of tokens."""
    if dtype == "float16":
        too_large = torch.nonzero((tokens.tokens.abs() > torch.finfo(torch.float16).max).any(1))
        if len(too_large):
            item, token = place_of(int(too_large[0]), tokens.offsets)
            raise ValueError(
                f"document {ids[item]!r}: token {token} has values beyond 65,504, the largest of "
                'float16: normalise the embeddings, or use keep_tokens="int8"'
            )
    rows = _row_columns(_TOKEN, StoredRows.encode(tokens.tokens, dtype))
    return Batch(ids, {}, rows, tokens.offsets)


def of_nothing(ids: Sequence[DocumentId]) -> Batch:
    """Return documents without columns."""
    return Batch(ids, {}, {}, np.zeros(len(ids) + 1, np.int64))


def with_labels(columns: Batch, first: int) -> Batch:
    """Return documents labelled from a number on."""
    labels = np.arange(first, first + len(columns))
    return replace(columns, documents={_LABEL: labels, **columns.documents})


def with_vectors(columns: Batch, vectors: StoredVectors) -> Batch:
    """Return documents with a vector each."""
    named = {_VECTOR: vectors.values, _scale_of(_VECTOR): vectors.scales, _ALONG: vectors.along}
    if vectors.row is not None:
        named |= {_ROW: vectors.row.values, _scale_of(_ROW): vectors.row.scales}
    given = {name: array for name, array in named.items() if array is not None}
    return replace(columns, documents={**given, **columns.documents})


def _row_columns(name: str, rows: StoredRows) -> dict[str, NDArray[Any]]:
    return {name: rows.values} | ({} if rows.scales is None else {_scale_of(name): rows.scales})


def _scale_of(name: str) -> str:
    return f"{name}_scale"


# --- reading ------------------------------------------------------------------------------------


def has_bases(rows: Rows) -> bool:
    """Return whether documents come with their bases."""
    return rows.has(_BASIS)


def has_tokens(rows: Rows) -> bool:
    """Return whether documents come with their tokens."""
    return rows.has(_TOKEN)


def has_codes(rows: Rows) -> bool:
    """Return whether documents come with vectors of small integers."""
    return rows.has(_scale_of(_VECTOR))


def bases(rows: Rows) -> StoredRows:
    """Return the directions of documents."""
    return _stored_rows(rows, _BASIS)


def tokens(rows: Rows) -> StoredRows:
    """Return the tokens of documents."""
    return _stored_rows(rows, _TOKEN)


def floors(rows: Rows) -> NDArray[np.float32]:
    """Return the floors of documents. Shape: (documents,)."""
    return rows.column(_FLOOR)


def labels(rows: Rows) -> NDArray[np.int64]:
    """Return the labels of documents, ascending. Shape: (documents,)."""
    return rows.column(_LABEL)


def vectors(parts: Sequence[Part], dtype: VectorDtype, dim: int) -> StoredVectors:
    """Return the vectors of chosen documents, as they are stored, one part after the other."""

    def column(name: str) -> NDArray[Any]:
        chosen = [rows.column(name)[documents] for rows, documents in parts]
        return chosen[0] if len(chosen) == 1 else np.concatenate(chosen)

    def optional(name: str) -> NDArray[Any] | None:
        return column(name) if parts[0][0].has(name) else None

    row = None
    if parts[0][0].has(_ROW):
        values = column(_ROW)
        row = Codes(values, column(_scale_of(_ROW)), 8, values.shape[1])
    scales, along = optional(_scale_of(_VECTOR)), optional(_ALONG)
    return StoredVectors(column(_VECTOR), dtype, dim, scales, along, row)


def kept(rows: Rows, documents: NDArray[np.int64]) -> list[NDArray[np.float32]]:
    """Return the tokens, or else the bases, of chosen documents. Shape of each: (rows, d)."""
    stored = tokens(rows) if has_tokens(rows) else bases(rows)
    return stored.decode_items(rows.offsets, documents)


def subspaces(rows: Rows) -> Subspaces:
    """Return the subspaces of documents; weights are part of the rows."""
    decoded = bases(rows).decode()
    ones = torch.ones(len(decoded))
    return Subspaces(decoded, rows.offsets, ones, ones, torch.tensor(floors(rows)))


def _stored_rows(rows: Rows, name: str) -> StoredRows:
    scale = _scale_of(name)
    return StoredRows(rows.column(name), rows.column(scale) if rows.has(scale) else None)


# --- moving -------------------------------------------------------------------------------------


def without_vectors(columns: Batch) -> Batch:
    """Return documents with what they are re-ranked from only."""
    of_vectors = {_VECTOR, _scale_of(_VECTOR), _ALONG, _ROW, _scale_of(_ROW), _LABEL}
    rest = {name: x for name, x in columns.documents.items() if name not in of_vectors}
    return replace(columns, documents=rest)


def chosen(segment: Segment, documents: NDArray[np.int64], kept: bool) -> Batch:
    """Return chosen documents of a segment, in memory; at least their vectors or bases."""
    schema = segment.schema
    all_columns = kept or _VECTOR not in schema
    return segment.batch(
        documents, [name for name in schema if all_columns or schema[name].per == "document"]
    )


def joined(ids: Sequence[DocumentId], parts: Sequence[Mapping[str, NDArray[Any]]]) -> Batch:
    """Return documents of which there are the columns of each, at least one."""
    named = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    per_row = {_TOKEN, _BASIS, _scale_of(_TOKEN), _scale_of(_BASIS)}
    rows = {name: array for name, array in named.items() if name in per_row}
    main = _TOKEN if _TOKEN in rows else _BASIS
    return Batch(
        ids,
        {name: array for name, array in named.items() if name not in per_row},
        rows,
        offsets_of([len(part[main]) for part in parts]),
    )
