"""CorpusIndex: an index, its catalogue, and the model that encodes its queries and documents."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from ..errors import UnknownDocumentError
from ..indexes import databases
from ..indexes.documents import after_commit
from ..indexes.facts import facts
from ..indexes.inputs import several
from ..indexes.open_index import open_index
from ..models.encoder import Advance, Encoder, ignore, is_gone
from ..scores.explanation import explain_found
from ..storage import DocumentId, Store
from ..storage.ids import checked_ids
from ..storage.manifest import holds_index
from ..storage.trust import sign, untrusted
from .catalogue import ALWAYS, Catalogue, Document, holding
from .committing import CATALOGUE, changing, compact, mark, recover
from .hits import Answer, Hit, hit_of
from .metadata import Where
from .origin import check_same_model, is_trusted, origin_of

_COPIED_AT_ONCE = 1000


class CorpusIndex(ABC):
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
        Whether to use a model or a database that only the folder names, although it can run code.
        What you have named yourself, models of the Hub and the default model are used anyway.
    settings
        Further options of :func:`pylate_eigenli.indexes.open_index.open_index`.
    """

    holds: ClassVar[str]
    """"texts" or "pages"."""

    def __init__(
        self,
        folder: str | Path,
        model: str | Path | Encoder | None = None,
        *,
        override: bool = False,
        trust_index: bool = False,
        **settings: Any,
    ) -> None:
        path = self.path = Path(folder)
        self.catalogue = Catalogue(path)
        recover(path)
        about = {} if override else self.catalogue.about
        # A process that was killed before the first commit may leave a catalogue, but no index.
        self._about = about if holds_index(path) else {}
        if self._about and holding(self._about) != self.holds:
            raise ValueError(f"{path} holds {holding(self._about)}, not {self.holds}")
        # The model that was recorded when the index was opened.
        self._recorded = about.get("model")
        self._encoder = self._chosen(model)
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

    def _default_encoder(self) -> Encoder | None:
        """Return the model of an index that has none yet, if there is a default."""
        return None

    def _chosen(self, model: str | Path | Encoder | None) -> Encoder | None:
        made_with = self._about.get("model")
        if model is None:
            return None if made_with is None else self._encoder_of(made_with)
        encoder = self._encoder_of(str(model)) if isinstance(model, (str, Path)) else model
        if is_gone(encoder.name):
            raise FileNotFoundError(f"there is no model in {encoder.name}")
        check_same_model(self.path, self._about, encoder)
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
        if self._encoder is None and "model" not in self._about and not len(self):
            self._encoder = self._default_encoder()
            self._is_trusted = True
        if self._encoder is None:
            raise ValueError(f"the catalogue of {self.path} names no model: give model= or --model")
        if is_gone(self._encoder.name):
            raise ValueError(
                f"the model of {self.path} is no longer in {self._encoder.name}: give its new path "
                "as model= or --model"
            )
        self.check_trust()
        self._check_model()
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
        """Raise an error if the model is not, or no longer, the one that made the index."""
        about = self._facts
        recorded = about.get("model")
        if self._encoder is not None:
            try:
                check_same_model(self.path, about, self._encoder)
            except ValueError:
                if recorded in (self._recorded, self.model):
                    raise
                raise ValueError(
                    f"{self.path} was made anew with the model {recorded}; open it again"
                ) from None

    @property
    def _facts(self) -> dict[str, str]:
        """How the index was made, as the catalogue says; nothing while it is to be replaced."""
        is_new = self.index.is_overriding or not holds_index(self.path)
        return {} if is_new else self.catalogue.about

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
        nbytes = None
        with suppress(ValueError):  # a remote database does not report its size
            nbytes = index.nbytes
        return {
            "path": str(self.path),
            "holds": self.holds,
            **facts(index._snapshot, len(self), nbytes),
            "kind": index.kind,
            "settings": asdict(index.settings),
            "model": self.model,
        }

    def warm_up(self) -> None:
        """Load the model and compile the search, so that the first query does not wait."""
        self.answers(["warm-up"], 1, explain=True)

    def close(self) -> None:
        """Close the files and free the memory used for searching."""
        self.index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- changing -----------------------------------------------------------------------------

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

    def remove(self, documents_ids: DocumentId | Sequence[DocumentId]) -> None:
        """Remove documents. An unknown id raises an error, and nothing is removed."""
        ids = checked_ids(several(documents_ids))
        with self._changing([Document(i) for i in ids], {}, removed=True):
            self.index.remove_documents(ids)

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

    # --- reading ------------------------------------------------------------------------------

    def missing(self, documents_ids: Iterable[DocumentId]) -> list[DocumentId]:
        """Return the ids that the index does not hold."""
        with self._turn:
            return self.index.missing(documents_ids)

    def get(self, documents_ids: Sequence[DocumentId]) -> list[Document]:
        """Return documents with their texts and metadata; an unknown id raises an error."""
        unknown = self.missing(documents_ids)
        if unknown:
            raise UnknownDocumentError(f"no document {unknown[0]!r} in the index")
        known = self.catalogue.get(documents_ids, self._generation)
        return [known.get(i, Document(i)) for i in documents_ids]

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
        mark(folder, ALWAYS)

    # --- searching ----------------------------------------------------------------------------

    @overload
    def search(  # type: ignore[overload-overlap]
        self, query: str, top: int = ..., where: Where | None = ...
    ) -> list[Hit]: ...

    @overload
    def search(
        self, query: Sequence[str], top: int = ..., where: Where | None = ...
    ) -> list[list[Hit]]: ...

    def search(
        self, query: str | Sequence[str], top: int = 10, where: Where | None = None
    ) -> list[Hit] | list[list[Hit]]:
        """Find the documents with the highest scores.

        Parameters
        ----------
        query
            A question, or a list of questions.
        top
            Number of documents to return per question; fewer if there are not as many.
        where
            Conditions on the metadata of documents, all of which must hold: ``{"lang": "en"}``, any
            of several values ``{"lang": ["en", "de"]}``, or bounds ``{"year": {"gte": 2020}}`` with
            ``gt``, ``gte``, ``lt`` and ``lte``. Documents without the value are left out.

        Returns
        -------
        The hits of a question, best first; for a list of questions, a list of them for each.
        """
        if isinstance(query, str):
            return self.answers([query], top, where=where)[0].hits
        return [answer.hits for answer in self.answers(query, top, where=where)]

    def explain(self, query: str, document_id: DocumentId) -> list[tuple[str, float]]:
        """Return the tokens of a query, each with its contribution to the score of a document.

        Tokens that have no part in the embeddings of the query are left out. Contributions add up
        to the score.
        """
        (embedding,) = self.encoder.encode_queries([query])
        (tokens,) = self.encoder.query_tokens([query])
        with self._turn:
            (reason,) = explain_found(self.index, embedding, [document_id])
        return list(zip(tokens, reason.contributions.tolist(), strict=True))

    def answers(
        self,
        queries: Sequence[str | Any],
        k: int = 10,
        *,
        where: Where | None = None,
        subset: Sequence[Sequence[DocumentId]] | Sequence[DocumentId] | None = None,
        explain: bool = False,
        rerank: str | None = None,
        n_candidates: int | None = None,
    ) -> list[Answer]:
        """Find the documents with the highest scores for each query, with all options.

        Parameters
        ----------
        queries
            Texts, or token embeddings of shape (tokens, d), also mixed.
        where
            As for :meth:`search`; a subset must not be given as well.
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
        if not all(text.strip() for text in texts):
            raise ValueError("a query is empty")
        if where:
            if subset is not None:
                raise ValueError("give either where or subset, not both")
            subset = self.catalogue.matching(where, self._generation)
            if not subset:
                return [Answer([]) for _ in queries]
        encoded = iter(self.encoder.encode_queries(texts) if texts else [])
        tokens = iter(self.encoder.query_tokens(texts) if texts else [])
        embeddings = [next(encoded) if isinstance(query, str) else query for query in queries]
        with self._turn:
            found = self.index(embeddings, k=k, subset=subset, **options)
            highest = self.index.highest_scores(embeddings, rerank)
        documents = self.catalogue.get(
            {hit["id"] for hits in found for hit in hits}, self._generation
        )
        answers = []
        for query, matrix, hits, best in zip(queries, embeddings, found, highest, strict=True):
            contributions: list[NDArray[np.float32] | None] = [None] * len(hits)
            if explain:
                with self._turn:
                    ids = [hit["id"] for hit in hits]
                    reasons = explain_found(self.index, matrix, ids, **options)
                contributions = [reason.contributions for reason in reasons]
            text = query if isinstance(query, str) else None
            shown = [
                hit_of(
                    documents.get(hit["id"], Document(hit["id"])),
                    hit["score"],
                    min(hit["score"] / best, 1.0) if best > 0 else 0.0,
                    text,
                    reason,
                )
                for hit, reason in zip(hits, contributions, strict=True)
            ]
            answers.append(Answer(shown, None if text is None else next(tokens)))
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
            return {i: self.index.spectrum(t) for (i, _), t in zip(readable, tokens, strict=True)}
        try:
            with self._turn:
                (tokens,) = self.index.get_documents_embeddings([held])
        except UnknownDocumentError:
            # Another thread has moved on to a generation without one of them.
            return self.spectra(held)
        return {i: self.index.spectrum(t) for i, t in zip(held, tokens, strict=True)}
