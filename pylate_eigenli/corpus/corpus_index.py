"""CorpusIndex: an index, its catalogue and its model, to be searched and changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

from typing_extensions import Self

from ..indexes.conversion import copy_documents, new_settings
from ..indexes.documents import after_commit
from ..indexes.inputs import several
from ..models.encoder import Advance, ignore
from ..storage import DocumentId
from ..storage.ids import checked_ids
from ..storage.trust import sign
from .committing import changing, compact
from .corpus_reader import CorpusReader
from .document import Document
from .origin import is_trusted, origin_of


class CorpusIndex(CorpusReader):
    """An index together with its catalogue and the model that encodes its documents.

    The subclasses are :class:`pylate_eigenli.corpus.text_index.TextIndex` and
    :class:`pylate_eigenli.corpus.page_index.PageIndex`.

    Parameters
    ----------
    folder
        The folder of an index; made by the first documents.
    model
        A model, or its name or path. By default the one the index was made with; another one is
        refused.
    override
        Whether the first documents replace all that the index holds. Until they are committed, the
        old ones stay, whatever fails.
    trust_index
        Whether to use a model or a database that only the folder names, or the ANN structure of
        somebody else, although they can run code. What you have named or built yourself, models of
        the Hub and the default model are used anyway.
    settings
        Further options of :func:`pylate_eigenli.indexes.open_index.open_index`.
    """

    def likely_queries(self, documents: Sequence[Document]) -> list[str]:
        """Return texts that stand in for queries, to learn their statistics; none by default."""
        return []

    def add_documents(
        self,
        documents: Sequence[Document],
        embeddings: Sequence[Any] | None = None,
        *,
        advance: Advance = ignore,
    ) -> int:
        """Add documents in one commit, in place of those with the same ids; return their number.

        Parameters
        ----------
        documents
            The documents, each with an id of its own.
        embeddings
            Their token embeddings of shape (tokens, d); those that are None are encoded here.
        advance
            Called with the number of documents encoded since the last call.
        """
        if not documents:
            return 0
        tokens = list(embeddings or [None] * len(documents))
        missing = [i for i, given in enumerate(tokens) if given is None]
        if missing:
            contents = self.contents([documents[i] for i in missing])
            for i, content in zip(missing, contents, strict=True):
                if content is None:
                    raise ValueError(
                        f"document {documents[i].id!r} cannot be read: the index holds "
                        f"{self.holds}, so send its embeddings"
                    )
            encoded = self.encoder.encode_documents(contents, advance)
            for i, embedding in zip(missing, encoded, strict=True):
                tokens[i] = embedding
        return self._commit(documents, tokens, self._origin() if missing else {})

    def add_encoded(self, documents: Sequence[Document], embeddings: Sequence[Any]) -> int:
        """Add documents that the model of this index has encoded, in one commit."""
        return self._commit(documents, embeddings, self._origin()) if documents else 0

    def _origin(self) -> dict[str, str]:
        """Return the facts that the catalogue keeps about the index."""
        return origin_of(self.path, self.encoder)

    def _commit(
        self, documents: Sequence[Document], tokens: Sequence[Any], about: dict[str, str]
    ) -> int:
        queries, settings = None, self.index.settings
        if about and (settings.standardise or settings.auto) and self.index.dim is None:
            # Encoded before anything is committed, so that a failing model changes nothing.
            texts = self.likely_queries(documents)
            queries = self.encoder.encode_queries(texts) if texts else None
        with self._changing(documents, about):
            self.index.add_documents([document.id for document in documents], tokens)
        if queries is not None and self.index.settings.standardise:
            remedy = "learn them from a sample of queries with index.fit_queries()"
            with after_commit(self.path, "learning the statistics of queries", remedy):
                self.index.fit_queries(queries)
        return len(documents)

    def remove(self, documents_ids: DocumentId | Sequence[DocumentId]) -> list[DocumentId]:
        """Remove documents; return their ids.

        The name of a file stands for all its passages or pages, unless it is the id of a document.
        Anything else that is unknown raises an error, and nothing is removed.
        """
        names = list(dict.fromkeys(checked_ids(several(documents_ids))))
        parts = {name: self._parts(name) for name in self.missing(names)}
        ids = list(dict.fromkeys(chain.from_iterable(parts.get(name) or [name] for name in names)))
        with self._changing([Document(i) for i in ids], {}, removed=True):
            self.index.remove_documents(ids)
        return ids

    def _parts(self, name: DocumentId) -> list[DocumentId]:
        """Return the ids of the passages or pages of a file, not of records with such ids."""
        held = self.known(self.of_file(str(name)))
        return [i for i, document in held.items() if document.file == name]

    @contextmanager
    def _changing(
        self, documents: Sequence[Document], about: dict[str, str], *, removed: bool = False
    ) -> Iterator[None]:
        with (
            self._turn,
            changing(
                self.index, self.catalogue, documents, about, self._check_model, removed=removed
            ),
        ):
            yield

    def compact(self) -> None:
        """Give the space of removed and replaced documents back to the disk."""
        if self._in_database:
            self.index.compact()
        else:
            compact(self.path, self.catalogue)
            self.index.refresh()

    def convert(self, folder: str | Path, *, override: bool = False, **settings: Any) -> Self:
        """Make another index of the same documents, with their texts and metadata.

        Nothing is encoded again, and the model is not loaded; this index stays as it is.

        Parameters
        ----------
        folder
            The folder of the new index.
        override, settings
            As for :meth:`pylate_eigenli.EigenLIIndex.convert`.
        """
        options = new_settings(self.index, folder, override, settings)
        target = type(self)(folder, override=override, **options)
        target._encoder, target._is_trusted = self._encoder, self._is_trusted
        about = self.catalogue.about
        if self._is_trusted or is_trusted(self.path, about, runs_code=True):
            about["signature"] = sign(target.path, about.get("model", ""))
        ids = [document_id for part, _ in self.index.vectors() for document_id in part]
        documents = list(self.catalogue.get(ids, self._generation).values())
        has_catalogue = self.catalogue.path.is_file()  # an index made without texts has none
        with target._changing(documents, about) if has_catalogue else nullcontext():
            copy_documents(self.index, target.index)
        target._about = about
        return target
