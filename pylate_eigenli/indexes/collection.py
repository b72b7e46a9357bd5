"""The folder of an index: its settings and its codec in every state."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import IndexFormatError
from ..spectral.background import Background
from ..spectral.settings import of_new_index
from ..storage import Snapshot, Store, Transaction
from ..storage.batch import Batch, check_same_schema
from ..storage.manifest import Manifest
from .calibration import Calibration
from .codecs import Codec

SettingsT = TypeVar("SettingsT", bound=Any)
CodecT = TypeVar("CodecT", bound=Codec)

_CALIBRATION = "calibration"
_NUMBERS = ("dim", "next_label", "covered", "catalogue")
_LARGEST, _WIDEST = 2**53, 1 << 16
_LARGEST_VALUE = 1e90  # more than the squares of float32 can add up to
_TOTAL, _DOCUMENTS = "background.total", "background.documents"  # arrays of the collection


class Collection(Generic[SettingsT, CodecT]):
    """Settings and codec of an index, read once per state. The first document fixes them.

    ``wanted`` are the settings that the caller gives, ``projections`` those of tokens and vectors
    for a new index. With ``override`` the first change replaces what the folder holds.
    """

    companion: Callable[[Transaction], None] | None = None
    """Called with the transaction of a change of documents, just before it is committed."""

    def __init__(
        self,
        path: Path,
        kind: str,
        settings_type: type[SettingsT],
        codec_type: type[CodecT],
        wanted: Mapping[str, Any],
        projections: Sequence[Any],
        override: bool,
    ) -> None:
        self.path = path
        self.kind = kind
        self._settings_type = settings_type
        self._codec_type = codec_type
        self._wanted = wanted
        self._projections = projections
        self._store: Store | None = Store(path, override=override)
        # What was read last, with its state. Read these attributes once: threads replace them.
        self._read: tuple[Manifest, SettingsT, int | None] | None = None
        self._loaded: tuple[object, CodecT] | None = None
        self._checked: Manifest | None = None

    @property
    def store(self) -> Store:
        """The files; raises an error once the index is closed."""
        if self._store is None:
            raise ValueError(f"the index {self.path.name!r} is closed")
        return self._store

    @property
    def snapshot(self) -> Snapshot:
        """The state that the index shows."""
        return self.store.snapshot

    @property
    def is_closed(self) -> bool:
        """Whether the files are closed."""
        return self._store is None

    def close(self) -> None:
        """Close the files."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _about(self, snapshot: Snapshot) -> tuple[SettingsT, int | None]:
        known = self._read
        if known is None or known[0] is not snapshot.manifest:
            known = self._read = (snapshot.manifest, *self._parsed(snapshot))
        return known[1], known[2]

    def _parsed(self, snapshot: Snapshot) -> tuple[SettingsT, int | None]:
        meta = snapshot.manifest.meta
        if not meta and snapshot.segments:
            raise IndexFormatError(f"{self.path} has documents, but no settings")
        if not meta:
            return self._settings_type(**of_new_index(self._wanted)), None
        if meta.get("kind") != self.kind:
            raise IndexFormatError(
                f"{self.path} holds an index of kind {meta.get('kind')!r}, not {self.kind!r}: open "
                "it with open_index(), or make another one of it with index.convert(...) (`eigenli "
                "convert`)"
            )
        try:
            settings, dim = self._settings_type(**meta["settings"]), meta["dim"]
            for name, number in {"next_label": 0, "covered": 0, "catalogue": 0, **meta}.items():
                if name in _NUMBERS and (type(number) is not int or not 0 <= number < _LARGEST):
                    raise ValueError(f"{name} is {number!r}")
            if not 0 < dim <= _WIDEST:
                raise ValueError(f"dim is {dim}")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise IndexFormatError(
                f"the settings of {self.path} cannot be read: {error}"
            ) from error
        return settings.opened_with(self._wanted, self.path), dim

    def settings(self, snapshot: Snapshot) -> SettingsT:
        """Return the settings of a state; before the first document those of a new index."""
        return self._about(snapshot)[0]

    def dim(self, snapshot: Snapshot) -> int | None:
        """Return the dimension of the token vectors in a state; None before the first document."""
        return self._about(snapshot)[1]

    def codec(self, snapshot: Snapshot, tokens_dim: int | None = None) -> CodecT:
        """Return the codec of a state; before the first document a new one for ``tokens_dim``."""
        settings, dim = self._about(snapshot)
        if dim is None:
            most = getattr(settings, "token_projection", None) or tokens_dim or settings.k
            if "k" not in self._wanted and settings.k > most:
                settings = replace(settings, k=most)
            return self._codec_type.new(settings, *self._projections)
        manifest = snapshot.manifest
        # By a checksum, because other arrays change more often than those of the codec.
        key = (settings, manifest.meta.get("codec", manifest.collection))
        known = self._loaded
        try:
            if known is None or known[0] != key:
                known = (key, self._codec_type.load(settings, snapshot.collection))
            codec = known[1]
            if self._checked is not manifest:
                _check_arrays(snapshot, codec.no_documents(dim), codec.dim(dim))
        except (ArithmeticError, LookupError, TypeError, ValueError, RuntimeError) as error:
            raise IndexFormatError(f"{self.path} does not fit its settings: {error}") from error
        self._loaded, self._checked = known, manifest
        return codec

    def begin(self, transaction: Transaction, codec: CodecT, dim: int, **meta: Any) -> None:
        """Fix settings, dimension and codec of a new index."""
        if codec.calibration is not None:
            meta[_CALIBRATION] = asdict(codec.calibration)
        transaction.meta.update(kind=self.kind, settings=asdict(codec.settings), dim=dim, **meta)
        self.keep(transaction, codec)

    def calibration(self, snapshot: Snapshot) -> Calibration | None:
        """Return how the settings of a state were chosen; None if they were given."""
        kept = snapshot.manifest.meta.get(_CALIBRATION)
        try:
            return None if kept is None else Calibration(**kept)
        except TypeError as error:
            raise IndexFormatError(
                f"the calibration of {self.path} cannot be read: {error}"
            ) from error

    def keep(self, transaction: Transaction, codec: CodecT) -> None:
        """Store what a codec has learnt."""
        arrays = codec.to_arrays()
        transaction.meta["codec"] = checksum(arrays)
        for name, array in arrays.items():
            transaction.set_collection(name, array)


def _check_arrays(state: Snapshot, expected: Batch, dim: int) -> None:
    """Raise an error for other columns than expected, or for bad arrays of the collection.

    ``dim`` is the dimension of transformed tokens.
    """
    for name, array in state.collection.items():
        if array.dtype.kind == "f" and not float(np.abs(array).max(initial=0)) < _LARGEST_VALUE:
            raise ValueError(f"array {name!r} has values that are not numbers, or are too large")
    for segment in state.segments:
        check_same_schema(segment.schema, expected.schema)
    background = stored_background(state)
    if background is not None and (
        background.total.shape not in ((dim, dim), (0, 0)) or background.documents < 0
    ):
        raise ValueError(f"the background has shape {background.total.shape} for {dim} dimensions")


def checksum(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return a checksum of arrays and their names."""
    total = 0
    for name, array in sorted(arrays.items()):
        total = zlib.crc32(np.ascontiguousarray(array).data, zlib.crc32(name.encode(), total))
    return f"{total:08x}"


def stored_background(state: Snapshot) -> Background | None:
    """Return the background that is stored with a state, if any."""
    if _TOTAL in state.collection:
        total, documents = (np.array(state.collection[name]) for name in (_TOTAL, _DOCUMENTS))
        return Background(total, int(documents[0]))
    in_manifest = state.manifest.meta.get("background")  # where it was before version 0.1
    return None if in_manifest is None else Background.from_json(in_manifest)


def store_background(transaction: Transaction, background: Background) -> None:
    """Store the background."""
    transaction.meta.pop("background", None)
    transaction.set_collection(_TOTAL, background.total)
    transaction.set_collection(_DOCUMENTS, np.array([background.documents]))
