"""An open index: its settings, the state it shows, its size and its documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from ..errors import check_positive
from ..scores.explanation import spectrum
from ..scores.interface import Base
from ..spectral.settings import with_preset
from ..storage import DocumentId, Snapshot
from ..storage.ids import checked_id, checked_ids
from ..tokens import collect
from . import foreign_options
from .calibration import Calibration
from .collection import CodecT, Collection, SettingsT
from .documents import DocumentStore
from .inputs import grouped_ids, several
from .settings import SpectralOptions

_VECTOR_BYTES = 16 << 20


class OpenedIndex(Base, Generic[SettingsT, CodecT]):
    """A PyLate index; see :class:`pylate_eigenli.EigenLIIndex` for its parameters.

    ``options`` are those of both kinds of index, ``own`` those of this kind.
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
        """The settings of the index."""
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

    # --- reading ------------------------------------------------------------------------------

    def vectors(
        self, documents_ids: Iterable[DocumentId] | None = None, batch_size: int | None = None
    ) -> Iterator[tuple[list[DocumentId], NDArray[np.float32]]]:
        """Yield the single vectors of documents, whose inner products with queries are the scores.

        Other search engines find what the index finds with these and :meth:`encode_queries`.

        Parameters
        ----------
        documents_ids
            By default all documents, in the order of insertion (of a database, in any order).
        batch_size
            Number of documents to yield at a time. By default 16 MB of vectors.

        Yields
        ------
        A list of ids and their vectors, of shape (documents, D), float32; D is d (d + 1) / 2 unless
        the index has projections.
        """
        check_positive(or_none=True, batch_size=batch_size)
        state, ids = self._snapshot, None
        if documents_ids is not None:
            ids = checked_ids(several(documents_ids))
        size = batch_size or max(1, _VECTOR_BYTES // (4 * (self.vector_dim or 1)))
        codec = self._collection.codec(state)
        for part in self._documents.columns(state, ids, size, kept=False):
            yield part.ids(), codec.vectors(part, np.arange(len(part))).numpy()

    def spectrum(self, document_embeddings: Any) -> NDArray[np.float32]:
        """Return the eigenvalues of a document, of which the index keeps the first k directions.

        Parameters
        ----------
        document_embeddings
            Shape: (tokens, d).

        Returns
        -------
        The non-zero eigenvalues of the second moment of the tokens, descending; of standardised
        tokens, if the index standardises them. Shape: (rank,), float32.
        """
        state = self._snapshot
        tokens = collect([document_embeddings], dim=self._collection.dim(state), device="cpu")
        transforms = self._collection.codec(state).subspaces.transforms
        return spectrum(transforms.documents(tokens).tokens)

    @property
    def vector_dim(self) -> int | None:
        """Dimension D of the single vectors, None before the first document."""
        state = self._snapshot
        dim = self._collection.dim(state)
        if dim is None:
            return None
        return self._collection.codec(state).width(dim)

    def get_documents_embeddings(
        self, documents_ids: Sequence[Sequence[DocumentId]]
    ) -> list[list[NDArray[np.float32]]]:
        """Return the token embeddings of documents, if the index keeps them.

        Parameters
        ----------
        documents_ids
            Lists of ids, for instance the candidates of several queries.

        Returns
        -------
        In the structure of the ids, the tokens of each document. Shape: (tokens, d), float32.
        """
        groups = grouped_ids(documents_ids)
        rows = iter(self._kept("tokens", [document_id for ids in groups for document_id in ids]))
        return [[next(rows) for _ in ids] for ids in groups]

    def bases(self, documents_ids: Iterable[DocumentId]) -> list[NDArray[np.float32]]:
        """Return the bases of documents, if the index keeps them.

        Parameters
        ----------
        documents_ids
            Ids of documents.

        Returns
        -------
        The directions of each document, times the root of their weights. Shape: (rank, d), float32.
        """
        return self._kept("bases", checked_ids(several(documents_ids)))

    def _kept(
        self, wanted: Literal["tokens", "bases"], ids: list[DocumentId]
    ) -> list[NDArray[np.float32]]:
        state = self._snapshot
        self._collection.codec(state).settings.check_kept(wanted)
        return self._documents.kept(state, ids)

    # --- files --------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Move on to what other processes have committed since; return whether anything changed."""
        return self._collection.store.refresh()

    def compact(self) -> Self:
        """Give the space of removed and replaced documents back to the disk."""
        self._documents.compact()
        return self

    def close(self) -> None:
        """Close files and connections, and free the memory used for searching."""
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
