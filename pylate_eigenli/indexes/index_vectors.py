"""The single vectors of an index, whether it keeps them or the subspaces they are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from . import columns as vector_column
from ..vectors.rows import decode_documents
from .databases.payload import to_bytes
from .base import DocumentIndex
from .eigenli import EigenLIIndex
from ..storage import DocumentId, Segment, Snapshot
from ..vectors.encoder import Projections
from .single_vector import EigenLISVIndex
from ..vectors.packing import pack_subspaces, packed_dim

# Columns that are of no use without the vectors they belong to.
_OF_VECTORS = {"label", *vector_column.COLUMNS}


@dataclass(frozen=True)
class IndexVectors:
    """A state of an index as vectors.

    Parameters
    ----------
    snapshot
        The state.
    d
        Dimension of the tokens that the subspaces are of.
    dim
        Dimension D of the vectors.
    projections
        What queries have to go through to match; None if the index makes no vectors itself.
    read
        Reads the vectors at some rows of a segment, as the index keeps them.
    """

    snapshot: Snapshot
    d: int
    dim: int
    projections: Projections | None
    read: Callable[[Segment, NDArray[np.int64]], Tensor]

    @classmethod
    def of(cls, index: EigenLIIndex | EigenLISVIndex) -> IndexVectors:
        """Return the vectors of an index; refuse one that holds no documents on this machine."""
        if not isinstance(index, DocumentIndex):
            raise TypeError(
                f"expected an EigenLIIndex or an EigenLISVIndex, got {type(index).__name__}"
            )
        snapshot = index._snapshot
        d = index._settings_of(snapshot)[1]
        if d is None or not len(snapshot):
            raise ValueError(f"the index {index.index_name!r} holds no documents on this machine")
        if isinstance(index, EigenLIIndex):
            return cls(snapshot, d, packed_dim(d), None, _packed_bases)
        settings = index.settings
        width = settings.width(d)
        projections, read = index._projections(snapshot), index._reader(snapshot)
        return cls(snapshot, settings.token_projection or d, width, projections, read)

    def batches(self, batch_size: int) -> Iterator[NDArray[np.int64]]:
        """Yield the global rows of all living documents, in the order of insertion."""
        living = np.concatenate(
            [
                start + np.flatnonzero(segment.alive)
                for start, segment in zip(
                    self.snapshot.starts, self.snapshot.segments, strict=False
                )
            ]
        )
        for begin in range(0, len(living), batch_size):
            yield living[begin : begin + batch_size]

    def ids(self, rows: NDArray[np.int64]) -> list[DocumentId]:
        """Return the ids of documents at ascending global rows."""
        return self.snapshot.ids_of(rows)

    def vectors(self, rows: NDArray[np.int64]) -> Tensor:
        """Return the vectors of documents at ascending global rows, not centred unless projected.

        Shape: (rows, D), float32.
        """
        parts = self.snapshot.by_segment(rows)
        vectors = torch.cat([self.read(segment, local) for segment, local, _ in parts])
        centre = None if self.projections is None else self.projections.centre
        return vectors if centre is None else vectors.add_(centre)

    @property
    def projected(self) -> bool:
        """Whether the vectors are projected, and centred: queries then lack a constant."""
        return self.projections is not None and self.projections.vectors is not None

    def kept(self, rows: NDArray[np.int64]) -> list[bytes]:
        """Return whatever else is kept of documents at ascending global rows, as bytes of each."""
        return [
            one
            for segment, local, _ in self.snapshot.by_segment(rows)
            for one in _kept(segment, local)
        ]


def _packed_bases(segment: Segment, documents: NDArray[np.int64]) -> Tensor:
    bases = decode_documents(segment, "basis", documents)
    offsets = np.concatenate([[0], np.cumsum([len(basis) for basis in bases])])
    floors = segment.column("floor")[documents]
    return pack_subspaces(torch.from_numpy(np.concatenate(bases)), offsets, floors)


def _kept(segment: Segment, documents: NDArray[np.int64]) -> Iterator[bytes]:
    names = [name for name in segment.schema if name not in _OF_VECTORS]
    per_document = [name for name in names if segment.schema[name].per == "document"]
    per_row = [name for name in names if segment.schema[name].per == "row"]
    for i in documents.tolist():
        begin, end = segment.offsets[i : i + 2].tolist()
        yield from to_bytes(
            {name: segment.column(name)[i : i + 1] for name in per_document},
            {name: segment.column(name)[begin:end] for name in per_row},
            np.array([0, end - begin]),
        )
