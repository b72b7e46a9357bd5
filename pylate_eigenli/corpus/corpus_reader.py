"""CorpusReader: an index, its catalogue and its model, to be searched."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from ..errors import UnknownDocumentError
from ..indexes.facts import facts
from ..indexes.open_index import open_index
from ..models.encoder import Encoder, is_gone
from ..scores.explanation import explain_found
from ..storage import DocumentId
from ..storage.manifest import holds_index
from ..storage.trust import untrusted
from .catalogue import ALWAYS, CATALOGUE, Catalogue, holding
from .committing import recover
from .document import Document
from .hits import Answer, Hit, hit_of
from .metadata import Where
from .origin import check_same_model, is_trusted


class CorpusReader(ABC):
    """What an index of texts or pages answers; the parameters are those of ``CorpusIndex``."""

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
        self._trust_index = trust_index
        self.index = open_index(path, override=override, trust_index=trust_index, **settings)
        self._in_database = self.index.in_database
        # An embedded database is not made for threads.
        self._turn: AbstractContextManager[Any] = (
            nullcontext() if self.index.thread_safe else threading.RLock()
        )

    @abstractmethod
    def _encoder_of(self, name: str) -> Encoder:
        """Return the encoder of a model, not loaded yet."""

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
            other.index = open_index(self.path, trust_index=self._trust_index)
        return other

    @property
    def encoder(self) -> Encoder:
        """The model that the index was made with."""
        if self._encoder is None and "model" not in self._about and not len(self):
            self._encoder = self._default_encoder()
            self._is_trusted = True
        if self._encoder is None:
            if self.is_without_texts:
                raise FileNotFoundError(
                    f"{self.catalogue.path} is missing, which held the texts and the name of the "
                    "model: restore it, or index the documents again with override=True "
                    "(--override)"
                )
            raise ValueError(
                f"{self.path} names no model: give the one it was made with as model= or --model"
            )
        if is_gone(self._encoder.name):
            raise ValueError(
                f"the model of {self.path} is no longer in {self._encoder.name}: give its new path "
                "as model= or --model"
            )
        self.check_trust()
        self._check_model()
        return self._encoder

    @property
    def is_without_texts(self) -> bool:
        """Whether the catalogue of the index is lost."""
        return CATALOGUE in self.index.meta and not self.catalogue.path.exists()

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

    @property
    def passages(self) -> tuple[int, int]:
        """Numbers of passages or pages in the index, and of the files that they are of."""
        if self.index.is_overriding:
            return 0, 0
        return self.catalogue.count_passages(self._generation)

    def about(self) -> dict[str, Any]:
        """Return what the index holds and how it was made, as JSON values."""
        index = self.index
        passages, files = self.passages
        nbytes = None
        with suppress(ValueError):  # a remote database does not report its size
            nbytes = index.nbytes
        return {
            "path": str(self.path),
            "holds": self.holds,
            "passages": passages,
            "files": files,
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

    # --- reading ------------------------------------------------------------------------------

    def missing(self, documents_ids: Iterable[DocumentId]) -> list[DocumentId]:
        """Return the ids that the index does not hold."""
        with self._turn:
            return self.index.missing(documents_ids)

    def known(self, documents_ids: Collection[DocumentId]) -> dict[DocumentId, Document]:
        """Return documents with their texts and metadata by id, without unknown ids."""
        missing = set(self.missing(documents_ids))
        held = [i for i in documents_ids if i not in missing]
        rows = self.catalogue.get(held, self._generation) if held else {}
        return {i: rows.get(i, Document(i)) for i in held}

    def get(self, documents_ids: Sequence[DocumentId]) -> list[Document]:
        """Return documents with their texts and metadata; an unknown id raises an error."""
        known = self.known(documents_ids)
        for document_id in documents_ids:
            if document_id not in known:
                raise UnknownDocumentError(f"no document {document_id!r} in the index")
        return [known[document_id] for document_id in documents_ids]

    def of_file(self, file: str) -> dict[str, str]:
        """Return the ids of the passages or pages of a file, in their order, with fingerprints."""
        if self.index.is_overriding:
            return {}
        known = self.catalogue.of_file(file, self._generation)
        unknown = set(self.missing(known))
        return {i: known[i] for i in known if i not in unknown}

    def records(self) -> list[DocumentId]:
        """Return the ids of the documents that are of no file."""
        known = self.catalogue.records(self._generation)
        unknown = set(self.missing(known))
        return [i for i in known if i not in unknown]

    @property
    def _generation(self) -> int:
        return int(self.index.meta.get(CATALOGUE, ALWAYS))

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
                    min(hit["score"] / float(best), 1.0) if best > 0 else 0.0,
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
