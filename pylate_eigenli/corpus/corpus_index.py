"""CorpusIndex: an index, its catalogue, and the model that encodes its queries and documents."""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from ..errors import IndexFormatError, IndexLockedError, UnknownDocumentError
from ..indexes import databases
from ..indexes.documents import after_commit
from ..indexes.open_index import holds_index, open_index
from ..indexes.single_vector import EigenLISVIndex
from ..models.default import cache_folder
from ..models.encoder import Advance, Encoder, ignore, is_gone
from ..models.fingerprint import fingerprint_of
from ..scores.explanation import explain_found, spectrum
from ..storage import DocumentId, Snapshot, Store, Transaction
from ..storage.lock import writer_lock
from ..storage.manifest import Manifest
from ..storage.trust import is_signed, sign, untrusted
from .catalogue import ALWAYS, Catalogue, Document
from .hits import Answer, Hit, snippet

CATALOGUE = "catalogue"
"""Key of the manifest's meta: the generation of the newest rows of the catalogue."""
_COPIED_AT_ONCE = 1000


class CorpusIndex(ABC):
    """An index together with its catalogue and the model that encodes its documents.

    The subclasses are :class:`pylate_eigenli.corpus.text_index.TextIndex` and
    :class:`pylate_eigenli.corpus.page_index.PageIndex`.

    Parameters
    ----------
    path
        The folder of an index.
    model
        A model, or its name or path. By default the one the index was made with; another one is
        refused.
    override
        Whether the first documents replace all that the index holds. Until they are committed, the
        old ones stay, whatever fails.
    trust_index
        Whether to use a model or a database that only the folder names, although it can run code.
        What you have named yourself, models of the Hub and the default model are used anyway.
    settings
        Further options of :func:`pylate_eigenli.indexes.open_index.open_index`.
    """

    holds: ClassVar[str]
    """"texts" or "pages"."""

    def __init__(
        self,
        path: str | Path,
        *,
        model: str | Encoder | None = None,
        override: bool = False,
        trust_index: bool = False,
        **settings: Any,
    ) -> None:
        self.path = Path(path)
        self.catalogue = Catalogue(path)
        recover(path)
        about = {} if override else self.catalogue.about
        # A process that was killed before the first commit may leave a catalogue, but no index.
        self._about = about if holds_index(path) else {}
        if self._about and holding(self._about) != self.holds:
            raise ValueError(f"{path} holds {holding(self._about)}, not {self.holds}")
        # The model that was recorded when the index was opened.
        self._recorded = about.get("model")
        self._encoder = self._chosen(model, self._about.get("model"))
        self._is_trusted = model is not None or trust_index
        self.index = open_index(path, override=override, trust_index=trust_index, **settings)
        self._in_database = self.index.in_database
        # An embedded database is not made for threads.
        self._turn: AbstractContextManager[Any] = (
            nullcontext() if self.index.thread_safe else threading.RLock()
        )

    @abstractmethod
    def _encoder_of(self, name: str) -> Encoder:
        """Return the encoder of a model, not loaded yet."""

    def likely_queries(self, documents: Sequence[Document]) -> list[str]:
        """Return texts that stand in for queries, to learn their statistics; none by default."""
        return []

    @abstractmethod
    def contents(self, documents: Sequence[Document]) -> list[Any]:
        """Return the model's input for documents of the catalogue; None if a file is gone."""

    def _chosen(self, model: str | Encoder | None, made_with: str | None) -> Encoder | None:
        encoder = self._encoder_of(model) if isinstance(model, str) else model
        if encoder is None:
            return None if made_with is None else self._encoder_of(made_with)
        if is_gone(encoder.name):
            raise FileNotFoundError(f"there is no model in {encoder.name}")
        other = made_with is not None and made_with != encoder.name
        if other and not is_gone(str(made_with)):
            raise ValueError(f"{self.path} was made with the model {made_with}, not {encoder.name}")
        return encoder

    def reopened(self) -> Self:
        """Return a second view of the index, for another generation, with the same model.

        A database has no generations, and an embedded one takes one connection: both views then
        share it.
        """
        other = copy(self)
        if not self._in_database:
            other.index = open_index(self.path)
        return other

    @property
    def encoder(self) -> Encoder:
        """The model that the index was made with."""
        if self._encoder is None:
            raise ValueError(f"the catalogue of {self.path} names no model: give model= or --model")
        if is_gone(self._encoder.name):
            raise ValueError(
                f"the model of {self.path} is no longer in {self._encoder.name}: give its new path "
                "as model= or --model"
            )
        self._check_model()
        self.check_trust()
        return self._encoder

    def check_trust(self, runs_code: bool = False) -> None:
        """Raise an error if only the folder names the model, and the model can run code.

        Parameters
        ----------
        runs_code
            Whether code that a model of the Hub brings is to be run.
        """
        about = self._about
        if not self._is_trusted and not is_trusted(self.path, about, runs_code):
            raise untrusted(self.path, f"the model {about.get('model')}", "model= or --model")

    def _check_model(self) -> None:
        """Raise an error if another process has made the index anew with another model."""
        recorded = self._facts.get("model")
        if recorded not in (None, self._recorded, self.model):
            raise ValueError(f"{self.path} was made anew with the model {recorded}; open it again")

    @property
    def _facts(self) -> dict[str, str]:
        """How the index was made, as the catalogue says; nothing while it is to be replaced."""
        return {} if self.index.is_overriding else self.catalogue.about

    @property
    def model(self) -> str | None:
        """Name or path of the model; None if it is not known."""
        return None if self._encoder is None else self._encoder.name

    def __len__(self) -> int:
        with self._turn:
            return len(self.index)

    def about(self) -> dict[str, Any]:
        """Return what the index holds and how it was made, as JSON values."""
        index = self.index
        documents, nbytes = len(self), None
        with suppress(ValueError):  # a remote database does not report its size
            nbytes = index.nbytes
        codes = {"agreement": index.agreement} if isinstance(index, EigenLISVIndex) else {}
        chosen = index.calibration
        return {
            "path": str(self.path),
            "kind": index.kind,
            "holds": self.holds,
            "documents": documents,
            "dim": index.dim,
            "bytes": nbytes,
            "bytes_per_document": None if nbytes is None else round(nbytes / max(documents, 1)),
            **codes,
            "settings": asdict(index.settings),
            "calibration": None if chosen is None else asdict(chosen),
            "model": self.model,
            "generation": index.generation,
        }

    def warm_up(self) -> None:
        """Load the model and compile the search, so that the first query does not wait."""
        self.search(["warm-up"], 1, explain=True)

    def close(self) -> None:
        """Close the files and free the memory used for searching."""
        self.index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- changing -----------------------------------------------------------------------------

    def add(
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
        return self._commit(documents, tokens, self._made_with() if missing else {})

    def add_encoded(self, documents: Sequence[Document], embeddings: Sequence[Any]) -> int:
        """Add documents that the model of this index has encoded, in one commit."""
        return self._commit(documents, embeddings, self._made_with()) if documents else 0

    def _made_with(self) -> dict[str, str]:
        """Return the facts that the catalogue keeps about the index."""
        encoder = self.encoder
        signature = sign(self.path, encoder.name)
        return {
            "model": encoder.name,
            "fingerprint": encoder.fingerprint,
            "signature": signature,
        }

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

    def remove(self, documents_ids: Sequence[DocumentId]) -> None:
        """Remove documents. An unknown id raises an error, and nothing is removed."""
        with self._changing([Document(i) for i in documents_ids], {}, removed=True):
            self.index.remove_documents(documents_ids)

    @contextmanager
    def _changing(
        self, documents: Sequence[Document], about: dict[str, str], *, removed: bool = False
    ) -> Iterator[None]:
        """Change the catalogue together with the index, which the block changes."""
        if self._in_database:
            with self._turn:
                yield from self._changing_database(documents, about, removed)
            return
        made: list[int] = []

        def write_catalogue(transaction: Transaction) -> None:
            base, generation = transaction.base, transaction.base.generation + 1
            if self.index.is_overriding:
                self.catalogue.set_aside(base.generation)
            elif about:
                self._check_model()  # once more, now that nobody else can write
            self.catalogue.put(documents, generation, about, newest_rows(base))
            if transaction.meta:  # that of an index without documents stays empty
                transaction.meta[CATALOGUE] = generation
            made.append(generation)

        try:
            with self.index.accompanied(write_catalogue):
                yield
        finally:
            recover(self.path)
        self.catalogue.discard((document.id for document in documents), made[-1], removed=removed)

    def _changing_database(
        self, documents: Sequence[Document], about: dict[str, str], removed: bool
    ) -> Iterator[None]:
        """Change the catalogue of a database, which shows documents as they arrive.

        Rows are written before their documents and deleted after them. If the database fails in
        between, adding the same documents again completes both.
        """
        if not removed:
            if self.index.is_overriding:
                self.catalogue.set_aside(self.index.generation)
            self.catalogue.put(documents, ALWAYS, about)
        try:
            yield
        finally:
            recover(self.path)
        _mark(self.path)
        self.index.refresh()
        if removed:
            self.catalogue.put(documents, ALWAYS)
            self.catalogue.discard((document.id for document in documents), ALWAYS, removed=True)

    def compact(self) -> None:
        """Give the space of removed and replaced documents back to the disk."""
        if self._in_database:
            self.index.compact()
        else:
            # One transaction: nobody else can write between the two steps.
            with Store(self.path).transaction() as transaction:
                self.catalogue.compact(newest_rows(transaction.base))
                transaction.compact()
            self.index.refresh()

    # --- reading ------------------------------------------------------------------------------

    def missing(self, documents_ids: Iterable[DocumentId]) -> list[DocumentId]:
        """Return the ids that the index does not hold."""
        with self._turn:
            return self.index.missing(documents_ids)

    def of_file(self, file: str) -> dict[str, str]:
        """Return the ids of the passages or pages of a file, in their order, with fingerprints."""
        if self.index.is_overriding:
            return {}
        known = self.catalogue.of_file(file, self._generation)
        unknown = set(self.missing(known))
        return {i: known[i] for i in known if i not in unknown}

    @property
    def _generation(self) -> int:
        return int(self.index.meta.get(CATALOGUE, ALWAYS))

    def copy_catalogue(self, folder: str | Path) -> None:
        """Copy the catalogue to the folder of an index in a database."""
        target = Catalogue(folder)
        about = self.catalogue.about
        if self._is_trusted or is_trusted(self.path, about, runs_code=True):
            about["signature"] = sign(Path(folder), about.get("model", ""))
        ids = list(Store(self.path).snapshot)
        for chunk in databases.chunks(ids, _COPIED_AT_ONCE):
            rows = self.catalogue.get(chunk, self._generation).values()
            target.put(rows, ALWAYS, about)
        _mark(folder)

    def search(
        self,
        queries: Sequence[str | Any],
        k: int = 10,
        *,
        subset: Sequence[Sequence[DocumentId]] | Sequence[DocumentId] | None = None,
        explain: bool = False,
        rerank: str | None = None,
        n_candidates: int | None = None,
    ) -> list[Answer]:
        """Find the documents with the highest scores for each query.

        Parameters
        ----------
        queries
            Texts, or token embeddings of shape (tokens, d), also mixed.
        k, subset
            As for the index.
        explain
            Whether to say what each token of a query contributes to each score.
        rerank, n_candidates
            As for :class:`pylate_eigenli.EigenLISVIndex`; other indexes do not have them.
        """
        given = {"rerank": rerank, "n_candidates": n_candidates}
        options: dict[str, Any] = {
            name: value for name, value in given.items() if value is not None
        }
        if options and not hasattr(self.index.settings, "backend"):
            raise ValueError(
                f"{' and '.join(options)}: only an index of single vectors re-ranks; "
                "make one with `eigenli index --backend exact --keep-tokens int8`"
            )
        if not queries:
            return []
        texts = [query for query in queries if isinstance(query, str)]
        encoded = iter(self.encoder.encode_queries(texts) if texts else [])
        tokens = iter(self.encoder.query_tokens(texts) if texts else [])
        embeddings = [next(encoded) if isinstance(query, str) else query for query in queries]
        with self._turn:
            found = self.index(embeddings, k=k, subset=subset, **options)
        documents = self.catalogue.get(
            {hit["id"] for hits in found for hit in hits}, self._generation
        )
        answers = []
        for query, matrix, hits in zip(queries, embeddings, found, strict=True):
            contributions: list[NDArray[np.float32] | None] = [None] * len(hits)
            if explain:
                with self._turn:
                    ids = [hit["id"] for hit in hits]
                    reasons = explain_found(self.index, matrix, ids, **options)
                contributions = [reason.contributions for reason in reasons]
            is_text = isinstance(query, str)
            shown = []
            for hit, contribution in zip(hits, contributions, strict=True):
                known = documents.get(hit["id"], Document(hit["id"]))
                part = snippet(known.text, query if is_text else "")
                place = (known.title, part, known.file, known.page)
                shown.append(Hit(hit["id"], hit["score"], *place, contribution))
            answers.append(Answer(shown, next(tokens) if is_text else None))
        return answers

    @property
    def keeps_tokens(self) -> bool:
        """Whether the index holds the token embeddings of its documents."""
        return getattr(self.index.settings, "keep_tokens", "none") != "none"

    def spectra(self, documents_ids: Sequence[DocumentId]) -> dict[DocumentId, NDArray[np.float32]]:
        """Return the spectra of those documents whose tokens are kept or can be encoded again."""
        missing = set(self.missing(documents_ids))
        held = [document_id for document_id in documents_ids if document_id not in missing]
        if not self.keeps_tokens:
            known = {} if self._encoder is None else self.catalogue.get(held, self._generation)
            readable = [
                (document_id, content)
                for document_id, content in zip(
                    known, self.contents(list(known.values())), strict=True
                )
                if content is not None
            ]
            contents = [content for _, content in readable]
            tokens = self.encoder.encode_documents(contents) if contents else []
            return {i: spectrum(matrix) for (i, _), matrix in zip(readable, tokens, strict=True)}
        try:
            with self._turn:
                (tokens,) = self.index.get_documents_embeddings([held])
        except UnknownDocumentError:
            # Another thread has moved on to a generation without one of them.
            return self.spectra(held)
        return {i: spectrum(matrix) for i, matrix in zip(held, tokens, strict=True)}


def holding(about: dict[str, str]) -> str:
    """Return "texts" or "pages", from the facts in a catalogue."""
    return "pages" if "folder" in about else "texts"


def is_trusted(path: Path, about: dict[str, str], runs_code: bool = False) -> bool:
    """Return whether the model that a catalogue names can be used without being named again.

    sentence-transformers imports Python classes from the folder of a model, but not from the Hub.
    """
    name = about.get("model", "")
    if not runs_code and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) and not Path(name).is_dir():
        return True
    if is_signed(path, name, about.get("signature")):
        return True
    return Path(name).resolve().is_relative_to(cache_folder().resolve())


def newest_rows(state: Snapshot) -> int:
    """Return the generation of the newest rows of the catalogue that belong to a state."""
    return int(state.meta.get(CATALOGUE, ALWAYS))


def recover(path: str | Path) -> None:
    """Finish an override, or undo it if it failed or was killed before the commit."""
    catalogue = Catalogue(path)
    if catalogue.is_set_aside:
        # If the index is locked, the override is still running.
        with suppress(IndexLockedError, IndexFormatError), writer_lock(Path(path)):
            catalogue.recover(Manifest.read(Path(path)).generation)


def _mark(path: str | Path) -> None:
    """Note in the manifest of an index in a database that it has a catalogue."""
    with Store(path).transaction() as transaction:
        if transaction.meta:
            transaction.meta[CATALOGUE] = ALWAYS


def verify(path: str | Path) -> list[str]:
    """Return what is damaged in the folder of an index, one line each; empty if all is well.

    The model is not loaded, and a database is not contacted: only files are checked.
    """
    recover(path)
    store = Store(path)
    damage = store.verify()
    if damage:  # then nothing can be said about its documents
        return [*damage, *Catalogue(path).damage()]
    snapshot = store.snapshot
    catalogue = Catalogue(path)
    damage = catalogue.damage(snapshot, newest_rows(snapshot), expected=CATALOGUE in snapshot.meta)
    if damage:
        return damage
    about = catalogue.about
    if not is_trusted(Path(path), about):
        return []
    recorded, now = about.get("fingerprint"), fingerprint_of(about.get("model", ""))
    if recorded and now and recorded != now:
        return [f"the model {about['model']} has changed since it encoded the documents"]
    return []
