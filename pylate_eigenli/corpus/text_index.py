"""Search texts by texts: an index, the model that made it, and the texts it was made from."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from ..errors import UnknownDocumentError
from ..indexes.databases import chunks
from ..indexes.open_index import holds_index, in_database, open_index
from ..indexes.single_vector import EigenLISVIndex
from ..models.text_encoder import Advance, EncodedQuery, TextEncoder, ignore
from ..scores.explanation import explain_found, spectrum
from ..storage import DocumentId, Store
from .hits import Answer, described
from .text_store import ALWAYS, TextDocument, TextStore

_COPIED_AT_ONCE = 1000


class TextIndex:
    """An index together with the texts of its documents and the model that encodes them.

    Parameters
    ----------
    path
        The folder of an index.
    model
        A PyLate model, or its name or path. By default the one the index was made with; another
        one is refused.
    override
        Whether to empty the index if it already exists.
    settings
        What else :func:`pylate_eigenli.indexes.open_index.open_index` takes.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> index = TextIndex(tempfile.mkdtemp(), k=2)
    >>> apple = TextDocument("apple", "Apples are red. They grow on trees.", title="Fruit")
    >>> index.add([apple], [np.eye(8, dtype=np.float32)[:4]])
    1
    >>> index.search([np.eye(8, dtype=np.float32)[:2]], k=1)[0].hits[0].snippet
    'Apples are red. They grow on trees.'
    """

    def __init__(
        self,
        path: str | Path,
        *,
        model: str | TextEncoder | None = None,
        override: bool = False,
        **settings: Any,
    ) -> None:
        self.path = Path(path)
        self.texts = TextStore(path)
        # The model that was recorded when the index was opened.
        self._recorded = None if override else self.texts.model
        # Whoever was killed before the first commit may have left a name, but no index.
        made_with = self._recorded if holds_index(path) else None
        encoder = TextEncoder(model) if isinstance(model, str) else model
        if encoder is not None:
            if encoder.is_gone:
                raise FileNotFoundError(f"there is no model in {encoder.name}")
            other = made_with is not None and made_with != encoder.name
            if other and not TextEncoder(str(made_with)).is_gone:
                raise ValueError(f"{path} was made with the model {made_with}, not {encoder.name}")
        elif made_with is not None:
            encoder = TextEncoder(made_with)
        self._encoder = encoder
        if override:
            rehearse(settings)
            with Store(self.path).transaction(override=True):
                self.texts.clear()
        # What is left to empty now is what a server holds.
        self.index = open_index(path, override=override and in_database(settings), **settings)
        self._turn: AbstractContextManager[Any] = nullcontext()
        if not self.index.thread_safe:
            self._turn = threading.RLock()  # an embedded database is not made for threads

    def reopened(self) -> TextIndex:
        """Return the index once more, to see another state of it with the same model in memory.

        A server has one state only, and an embedded one takes one connection: both then share it.
        """
        other = copy(self)
        if not self.index.in_database:
            other.index = open_index(self.path)
        return other

    @property
    def encoder(self) -> TextEncoder:
        """The model, as long as it is that of the index."""
        if self._encoder is None:
            raise ValueError(f"nothing says which model {self.path} was made with: name it")
        if self._encoder.is_gone:
            raise ValueError(
                f"the model that {self.path} was made with is gone from {self._encoder.name}: "
                "name the place where it is now"
            )
        self._check_model()
        return self._encoder

    def _check_model(self) -> None:
        """Refuse to mix what two models say, after another process has made the index anew."""
        recorded = self.texts.model
        if recorded not in (None, self._recorded, self.model):
            raise ValueError(f"{self.path} was made anew with the model {recorded}; open it again")

    @property
    def model(self) -> str | None:
        """Name or path of the model; None if nobody has said."""
        return None if self._encoder is None else self._encoder.name

    def __len__(self) -> int:
        with self._turn:
            return len(self.index)

    def about(self) -> dict[str, Any]:
        """Return what the index holds and how it was made, as JSON values."""
        index = self.index
        documents, nbytes = len(self), None
        with suppress(ValueError):  # a remote database does not say
            nbytes = index.nbytes
        return {
            "path": str(self.path),
            "kind": index.kind,
            "documents": documents,
            "dim": index.dim,
            "bytes": nbytes,
            "bytes_per_document": None if nbytes is None else round(nbytes / max(documents, 1)),
            "settings": asdict(index.settings),
            "model": self.model,
            "generation": index.generation,
        }

    def warm_up(self) -> None:
        """Load the model and what searches are compiled to, so that the first one does not wait."""
        self.search(["warm-up"], 1, explain=True)

    def close(self) -> None:
        """Let go of the files and of the memory used for searching."""
        self.index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(
        self,
        documents: Sequence[TextDocument],
        embeddings: Sequence[Any] | None = None,
        *,
        advance: Advance = ignore,
    ) -> int:
        """Add documents in one step, in place of those with the same ids; return their number.

        Parameters
        ----------
        documents
            The documents, each with an id of its own.
        embeddings
            Their token embeddings of shape (tokens, d); what is None is encoded here.
        advance
            Called with the number of documents encoded since the last call.
        """
        if not documents:
            return 0
        tokens = list(embeddings or [None] * len(documents))
        missing = [i for i, given in enumerate(tokens) if given is None]
        if missing:
            whole = [documents[i].whole for i in missing]
            for i, encoded in zip(missing, self.encoder.documents(whole, advance), strict=True):
                tokens[i] = encoded
        ids = [document.id for document in documents]
        with self._changing(documents, self.model if missing else None):
            self.index.add_documents(ids, tokens)
        return len(documents)

    def remove(self, documents_ids: Sequence[DocumentId]) -> None:
        """Remove documents. An id that the index does not hold is an error and removes nothing."""
        with self._changing([TextDocument(document_id, "") for document_id in documents_ids]):
            self.index.remove_documents(documents_ids)

    @contextmanager
    def _changing(
        self, documents: Sequence[TextDocument], model: str | None = None
    ) -> Iterator[None]:
        """Change the texts of documents, and say who encoded them, with the index in the block."""
        if self.index.in_database:
            with self._changing_served(documents, model):
                yield
            return
        made: list[int] = []

        def write_texts(state: int) -> None:
            if model is not None:
                self._check_model()  # once more, now that nobody else can write
            made.append(state)
            self.texts.put(documents, state, model)

        with self.index.accompanied(write_texts):
            yield
        self.texts.discard((document.id for document in documents), state=made[-1])

    @contextmanager
    def _changing_served(
        self, documents: Sequence[TextDocument], model: str | None
    ) -> Iterator[None]:
        """The same for a server, which shows documents as they arrive.

        Texts are there before their documents and go after them. If the server fails in between,
        adding the same documents again completes both.
        """
        with self._turn:
            self.texts.put((document for document in documents if document.whole), ALWAYS, model)
            yield
            without = [document for document in documents if not document.whole]
            self.texts.put(without, ALWAYS)
            self.texts.discard((document.id for document in without), ALWAYS)

    def missing(self, documents_ids: Iterable[DocumentId]) -> list[DocumentId]:
        """Return the ids that the index does not hold."""
        with self._turn:
            return self.index.missing(documents_ids)

    def passages(self, file: str) -> list[str]:
        """Return the ids of the passages of a file that the index holds, in their order."""
        known = self.texts.passages(file)
        unknown = set(self.missing(known))
        return [passage for passage in known if passage not in unknown]

    def copy_texts(self, folder: str | Path) -> None:
        """Copy the texts and the name of the model to an index that a server keeps."""
        target = TextStore(folder)
        for ids in chunks(list(self.index._snapshot), _COPIED_AT_ONCE):
            target.put(self.texts.get(ids, self.index.generation).values(), ALWAYS, self.model)

    def compact(self) -> None:
        """Give the space of removed and replaced documents back to the disk."""
        self.index.compact()
        self.texts.compact()

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
            As for :class:`pylate_eigenli.EigenLISVIndex`, which alone has them.
        """
        given = {"rerank": rerank, "n_candidates": n_candidates}
        options: dict[str, Any] = {
            name: value for name, value in given.items() if value is not None
        }
        if options and not isinstance(self.index, EigenLISVIndex):
            raise ValueError(
                f"{' and '.join(options)}: only an index of single vectors re-ranks; "
                "make one with `eigenli index --backend exact --keep-tokens int8`"
            )
        encoded = self._encoded(queries)
        if not encoded:
            return []
        embeddings = [query.embeddings for query in encoded]
        with self._turn:
            found = self.index(embeddings, k=k, subset=subset, **options)
        all_ids = {hit["id"] for hits in found for hit in hits}
        texts = self.texts.get(all_ids, self.index.generation)
        answers = []
        for text, query, hits in zip(queries, encoded, found, strict=True):
            ids = [hit["id"] for hit in hits]
            contributions: list[NDArray[np.float32] | None] = [None] * len(hits)
            if explain:
                with self._turn:
                    reasons = explain_found(self.index, query.embeddings, ids, **options)
                contributions = [reason.contributions for reason in reasons]
            shown = [
                described(hit, texts, text if isinstance(text, str) else "", contribution)
                for hit, contribution in zip(hits, contributions, strict=True)
            ]
            answers.append(Answer(shown, query.tokens if isinstance(text, str) else None))
        return answers

    def _encoded(self, queries: Sequence[str | Any]) -> list[EncodedQuery]:
        texts = [query for query in queries if isinstance(query, str)]
        encoded = iter(self.encoder.queries(texts) if texts else [])
        return [
            next(encoded) if isinstance(query, str) else EncodedQuery([], query)
            for query in queries
        ]

    @property
    def keeps_tokens(self) -> bool:
        """Whether the index holds the token embeddings of its documents."""
        return getattr(self.index.settings, "keep_tokens", "none") != "none"

    def spectra(self, documents_ids: Sequence[DocumentId]) -> dict[DocumentId, NDArray[np.float32]]:
        """Return the spectra of those documents whose tokens are kept or can be made again."""
        missing = set(self.missing(documents_ids))
        held = [document_id for document_id in documents_ids if document_id not in missing]
        if not self.keeps_tokens:
            texts = {} if self._encoder is None else self.texts.get(held, self.index.generation)
            whole = [document.whole for document in texts.values()]
            tokens = self.encoder.documents(whole) if whole else []
            return {i: spectrum(matrix) for i, matrix in zip(texts, tokens, strict=True)}
        try:
            with self._turn:
                (tokens,) = self.index.get_documents_embeddings([held])
        except UnknownDocumentError:
            # Another thread has moved on to a state without one of them.
            return self.spectra(held)
        return {i: spectrum(matrix) for i, matrix in zip(held, tokens, strict=True)}


def rehearse(
    settings: Mapping[str, Any],
    documents: Sequence[TextDocument] = (),
    model: TextEncoder | None = None,
) -> None:
    """Make an index in a place of its own, to see that it can be made before another is emptied.

    Parameters
    ----------
    settings
        What :func:`pylate_eigenli.indexes.open_index.open_index` takes.
    documents, model
        Documents to add to it, and what encodes them. They are not sent to a server.

    Examples
    --------
    >>> rehearse({"k": 0})
    Traceback (most recent call last):
    ...
    ValueError: k must be a positive integer, got 0
    """
    with TemporaryDirectory() as scratch:
        open_index(Path(scratch) / "empty", **settings).close()
        if in_database(settings):
            instead = dict.fromkeys(("backend", "backend_options", "uri", "token"))
            settings = {**settings, **instead}
        with TextIndex(Path(scratch) / "index", model=model, **settings) as index:
            index.add(documents)
