"""The ANN structure of a single-vector index: how it finds candidates and how it grows.

The structure is one array of the collection, next to the documents' vectors, and may lag behind them.
A search scans the documents that the structure does not cover, and drops removed documents from its
answers; it is built anew when many were removed. The structure knows documents by their labels:
increasing numbers that are never reused.

Libraries trust the bytes they read: those of a forged graph end the process, or worse. So their
structures are signed, as :mod:`pylate_eigenli.storage.trust` does it, and those of others are left
alone: all documents are scanned.
"""

from __future__ import annotations

import hashlib
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import IndexFormatError
from ...storage import Snapshot, Transaction
from ...storage.trust import is_signed, sign
from .. import ann as backends
from .. import columns
from ..codecs import VectorCodec
from ..registry import BUILT_IN, type_of
from ..settings import SVSettings

# The structure grows when this many documents, and this share of them, are not covered.
_PENDING_DOCUMENTS = 1000
_PENDING_SHARE = 0.1
_MAX_DEAD_SHARE = 0.3
_VECTORS_AT_ONCE = 1024
# A scan for so many queries at once reads codes once for all, and multiplies them this many times as
# fast as the codes of shortlists are fetched from here and there.
_BATCH, _BATCH_SHARE = 16, 20
_ANN = "ann"  # the array of the collection that holds the structure
_SIGNATURE = "ann_signature"
# The structures of this process, by their names: there may be no place for a key to sign them with.
_made_here: set[str] = set()


class _Covered(NamedTuple):
    """Labels (rows,) of a state, which of its rows live, and what of them the structure covers."""

    labels: NDArray[np.int64]
    alive: NDArray[np.bool_]
    rows: int
    living: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> _Covered:
        labels = np.concatenate([columns.labels(segment) for segment in snapshot.segments])
        alive = np.concatenate([segment.alive for segment in snapshot.segments])
        rows = int(np.searchsorted(labels, snapshot.meta.get("covered", 0)))
        return cls(labels, alive, rows, int(alive[:rows].sum()))


class Accelerator:
    """Finds candidates with the structure of a state, and loads it once.

    Parameters
    ----------
    path
        The folder of the index.
    is_trusted
        Whether to read the structures of libraries whoever has made them.
    """

    def __init__(self, path: Path, is_trusted: bool) -> None:
        self._path = path
        self._is_trusted = is_trusted
        # The structure that was loaded last, if there is one, and its key; the rows of the state
        # searched last.
        self._loaded: tuple[object, backends.Backend | None] | None = None
        self._covered: tuple[object, _Covered] | None = None

    def clear(self) -> None:
        """Free the structure."""
        self._loaded = self._covered = None

    def candidates(
        self, snapshot: Snapshot, settings: SVSettings, vectors: torch.Tensor, n: int
    ) -> tuple[int, list[NDArray[np.int64]]]:
        """Return the first row that the structure does not cover, and its candidates per query.

        ``vectors`` (queries, D) are those of queries. The candidates, ascending rows, are at least
        as many as hold the best n.
        """
        backend = self._backend(snapshot, settings) if len(vectors) else None
        if backend is None:
            return 0, [np.empty(0, np.int64)] * len(vectors)
        known = self._covered  # read once: another thread may replace it
        if known is None or known[0] is not snapshot.manifest:
            known = self._covered = (snapshot.manifest, _Covered.of(snapshot))
        labels, alive, covered, living = known[1]
        size, wanted = len(backend), backend.shortlist(n)
        if len(vectors) >= _BATCH and wanted > max(n, size / _BATCH_SHARE):
            return 0, [np.empty(0, np.int64)] * len(vectors)
        # Removed documents are among the answers: ask for more, twice as many if those are too few.
        asked = min(-(-wanted * size // max(living, 1)), size)
        while True:
            found, _ = backend.search(vectors.numpy(), asked)
            candidates, short = [], False
            for given in found:
                given = given[given >= 0]
                rows = np.minimum(np.searchsorted(labels, given), len(labels) - 1)
                valid = (labels[rows] == given) & alive[rows]
                candidates.append(np.sort(rows[valid][:wanted]))
                short |= len(candidates[-1]) < min(n, living) and not valid.all()
            if asked == size or not short:
                return covered, candidates
            asked = min(2 * asked, size)

    def _backend(self, snapshot: Snapshot, settings: SVSettings) -> backends.Backend | None:
        """Return the structure of a state, loaded once, or None if it has none."""
        manifest = snapshot.manifest
        # Other arrays change more often than the structure, so its checksum is the key.
        meta = manifest.meta
        key = (settings.backend_options, meta.get("ann", manifest.collection), meta.get(_SIGNATURE))
        known = self._loaded  # read once: another thread may replace it
        if known is None or known[0] != key:
            known = self._loaded = (key, self._load(snapshot, settings))
        return known[1]

    @staticmethod
    def is_due(snapshot: Snapshot, settings: SVSettings) -> bool:
        """Return whether enough documents wait for the structure to grow."""
        if settings.backend == "exact" or not len(snapshot):
            return False
        if len(snapshot) < type_of(settings.backend).fewest:
            return False
        waiting = int(snapshot.meta.get("next_label", 0)) - int(snapshot.meta.get("covered", 0))
        return waiting >= max(_PENDING_DOCUMENTS, _PENDING_SHARE * len(snapshot))

    def build(self, transaction: Transaction, codec: VectorCodec) -> None:
        """Bring the structure up to date; rebuild it if many documents were removed."""
        snapshot, settings = transaction.base, codec.settings
        size = len(snapshot)
        # A copy of its own: it is changed in place while other threads may search.
        backend = self._load(snapshot, settings)
        covered = snapshot.meta.get("covered", 0)
        if backend is not None:
            dead = len(backend) - sum(
                int((segment.alive & (columns.labels(segment) < covered)).sum())
                for segment in snapshot.segments
            )
            if dead > _MAX_DEAD_SHARE * len(backend) or backend.outgrown(size):
                backend = None
        if backend is None:
            covered = 0
            backend = backends.make(
                settings.backend, codec.encoder.width, size, settings.backend_options
            )
            if backend.sample_size:
                backend.train(_sample(snapshot, codec, backend.sample_size))
        for labels, vectors in _vectors(snapshot, codec, covered):
            backend.add(labels, vectors.numpy())
        structure = backend.to_bytes()
        transaction.set_collection(_ANN, structure)
        transaction.meta["covered"] = snapshot.meta.get("next_label", 0)
        transaction.meta["ann"] = f"{zlib.crc32(structure.data):08x}"
        if settings.backend not in BUILT_IN:
            name = _name_of(structure)
            _made_here.add(name)
            transaction.meta[_SIGNATURE] = sign(self._path, name)

    def _load(self, snapshot: Snapshot, settings: SVSettings) -> backends.Backend | None:
        """Return the structure of a state; None without one, and for one that is not trusted."""
        blob, backend = snapshot.collection.get(_ANN), settings.backend
        if blob is None or backend == "exact":
            return None
        if backend not in BUILT_IN and not self._is_ours(blob, snapshot.meta.get(_SIGNATURE)):
            warnings.warn(
                f"the {backend} structure of {self._path} was made by somebody else or in another "
                f"folder, and {backend} trusts what it reads: all documents are scanned instead; "
                "index.build() makes it anew, trust_index=True (--trust) uses it",
                stacklevel=2,
            )
            return None
        try:
            return backends.load(backend, blob, settings.backend_options)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise IndexFormatError(
                f"the {backend} structure of {self._path} cannot be read: {error}"
            ) from error

    def _is_ours(self, blob: NDArray[np.uint8], signature: object) -> bool:
        if self._is_trusted:
            return True
        name = _name_of(blob)
        return name in _made_here or is_signed(self._path, name, signature)


def _name_of(structure: NDArray[np.uint8]) -> str:
    """Return what is signed."""
    return f"ann {hashlib.sha256(structure.data).hexdigest()}"


def _vectors(
    snapshot: Snapshot, codec: VectorCodec, from_label: int = 0, step: int = 1
) -> Iterator[tuple[NDArray[np.int64], torch.Tensor]]:
    """Yield labels and vectors of every step-th living document from a label on, in batches."""
    for segment in snapshot.segments:
        labels = columns.labels(segment)
        rows = np.flatnonzero(segment.alive & (labels >= from_label))[::step]
        for begin in range(0, len(rows), _VECTORS_AT_ONCE):
            part = rows[begin : begin + _VECTORS_AT_ONCE]
            yield labels[part], codec.read(segment, part)


def _sample(snapshot: Snapshot, codec: VectorCodec, n: int) -> NDArray[np.float32]:
    """Return the vectors of about n living documents, evenly spread, at most of all."""
    step = max(1, -(-len(snapshot) // n))
    parts = [vectors for _, vectors in _vectors(snapshot, codec, step=step)]
    return np.asarray(torch.cat(parts).numpy())
