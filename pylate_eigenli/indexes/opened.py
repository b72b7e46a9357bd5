"""An index that is open: its settings, the state it shows and its size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NoReturn

from typing_extensions import Self

from ..scores.interface import Base
from ..spectral.settings import with_preset
from ..storage import DocumentId, Snapshot
from ..storage.ids import checked_id, checked_ids
from . import foreign_options
from .calibration import Calibration
from .collection import CodecT, Collection, SettingsT
from .documents import DocumentStore
from .settings import SpectralOptions


class OpenedIndex(Base, Generic[SettingsT, CodecT]):
    """A PyLate index; see :class:`pylate_eigenli.EigenLIIndex` for its parameters.

    ``options`` are those of the user by name, ``own`` further settings of this kind of index. An
    index that exists keeps its own settings.
    """

    is_end_to_end_index = True
    kind: ClassVar[str]
    settings_type: type[SettingsT]
    codec_type: type[CodecT]
    _documents: DocumentStore

    def __init__(
        self,
        index_folder: str,
        index_name: str,
        override: bool,
        options: SpectralOptions,
        device: str | None,
        show_progress: bool,
        projections: Sequence[Any] = (),
        **own: Any,
    ) -> None:
        foreign = [name for name in options if name not in SpectralOptions.__annotations__]
        foreign_options.refuse(type(self), foreign, device)
        wanted = with_preset(**{"preset": None, "filter": None, **options, **own})
        self.settings_type(**wanted)  # refuses bad values before anything is touched
        self.index_folder = index_folder
        self.index_name = index_name
        self.device = device
        self.show_progress = show_progress
        self._collection: Collection[SettingsT, CodecT] = Collection(
            Path(index_folder) / index_name,
            self.kind,
            self.settings_type,
            self.codec_type,
            wanted,
            projections,
            override,
        )
        self._collection.settings(self._snapshot)  # refuses an index that cannot be read

    @property
    def _snapshot(self) -> Snapshot:
        return self._collection.snapshot

    @property
    def settings(self) -> SettingsT:
        """What the index is made with."""
        return self._collection.settings(self._snapshot)

    @property
    def calibration(self) -> Calibration | None:
        """How the first documents chose the settings; None if these were given."""
        return self._collection.calibration(self._snapshot)

    @property
    def dim(self) -> int | None:
        """Dimension of the token vectors, None before the first document."""
        return self._collection.dim(self._snapshot)

    @property
    def generation(self) -> int:
        """Number of the change that made the state this index shows; 0 before the first one."""
        return self._snapshot.generation

    @property
    def meta(self) -> Mapping[str, Any]:
        """Metadata of the state this index shows, with the notes of a companion."""
        return self._snapshot.meta

    @property
    def is_overriding(self) -> bool:
        """Whether the next change replaces all that is on disk."""
        return self._collection.store.is_overriding

    @property
    def nbytes(self) -> int:
        """Bytes on disk, removed documents that still take space included."""
        return self._documents.nbytes(self._snapshot)

    @property
    def in_database(self) -> bool:
        """Whether a vector database holds the documents."""
        return self._documents.in_database

    @property
    def thread_safe(self) -> bool:
        """Whether threads may use the index at the same time; an embedded database is for one."""
        return self._documents.thread_safe

    def __len__(self) -> int:
        return self._documents.count(self._snapshot)

    def __contains__(self, document_id: object) -> bool:
        return not self._documents.missing(self._snapshot, [checked_id(document_id)])

    def missing(self, documents_ids: Iterable[DocumentId]) -> list[DocumentId]:
        """Return the ids that the index does not hold."""
        return self._documents.missing(self._snapshot, checked_ids(documents_ids))

    def refresh(self) -> bool:
        """Move on to what other processes have committed since; return whether anything changed."""
        return self._collection.store.refresh()

    def compact(self) -> Self:
        """Give the space of removed and replaced documents back to the disk."""
        self._documents.compact()
        return self

    def close(self) -> None:
        """Let go of the files, of connections and of the memory used for searching."""
        if not self._collection.is_closed:
            self._documents.close()
            self._collection.close()

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "an open index can be neither pickled nor copied: open it by its folder and name instead"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
