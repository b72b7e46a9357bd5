"""Search texts by texts: an index, the model that made it, and the texts it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from .errors import UnknownDocumentError
from .explanation import explain_found, spectrum
from .index import EigenLIIndex
from .storage import DocumentId
from .storage.manifest import FILE_NAME, Manifest
from .sv_index import EigenLISVIndex
from .text_encoder import Advance, EncodedQuery, TextEncoder, ignore
from .texts import TextDocument, TextStore, snippet

_KINDS: dict[str, type[EigenLIIndex] | type[EigenLISVIndex]] = {
    index.kind: index for index in (EigenLIIndex, EigenLISVIndex)
}


@dataclass(frozen=True)
class Hit:
    """A document that was found.

    Parameters
    ----------
    id, score
        What the index says.
    title, snippet
        Of its text; empty if that is not known.
    contributions
        What each token of the query adds to the score, if it was asked for. Shape: (tokens,).

    Examples
    --------
    >>> Hit("apple", 1.5, title="Fruit").title
    'Fruit'
    """

    id: DocumentId
    score: float
    title: str = ""
    snippet: str = ""
    contributions: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Answer:
    """The documents found for a query, best first, and the query's tokens if it was a text.

    Examples
    --------
    >>> [hit.id for hit in Answer([Hit("apple", 1.5), Hit("pear", 1.2)], ["fruit"]).hits]
    ['apple', 'pear']
    """

    hits: list[Hit]
    tokens: list[str] | None = None


def holds_index(path: str | Path) -> bool:
    """Return whether there is an index in a folder."""
    return (Path(path) / FILE_NAME).is_file()


def open_index(
    path: str | Path,
    *,
    single_vector: bool | None = None,
    override: bool = False,
    show_progress: bool = False,
    **settings: Any,
) -> EigenLIIndex | EigenLISVIndex:
    """Open the index in a folder, of whichever kind it is, or make one.

    Parameters
    ----------
    path
        The folder of the index itself.
    single_vector
        Whether it is an :class:`pylate_eigenli.EigenLISVIndex`. By default whatever it is, and
        a new one is not.
    override
        Whether to empty the index if it already exists.
    show_progress
        Whether to show a progress bar while documents are added.
    settings
        Further options of the index, None for the default.
    """
    folder = Path(path).resolve()
    meta = {} if override else Manifest.read(folder).meta
    kind = meta.get("kind", "eigenli-sv" if single_vector else "eigenli")
    if kind not in _KINDS:
        raise ValueError(f"{folder} holds an index of the unknown kind {kind!r}")
    if single_vector is not None and (_KINDS[kind] is EigenLISVIndex) != single_vector:
        if single_vector:
            raise ValueError(f"{folder} holds an index of subspaces, not of single vectors")
        raise ValueError(f"{folder} holds an index of single vectors, not of subspaces")
    given = {name: value for name, value in settings.items() if value is not None}
    return _KINDS[kind](
        str(folder.parent), folder.name, override=override, show_progress=show_progress, **given
    )


class TextIndex:
    """An index together with the texts of its documents and the model that encodes them.

    Parameters
    ----------
    path
        The folder of an index.
    model
        Name or path of a PyLate model. By default the one the index was made with; another one
        is refused.
    settings
        What :func:`open_index` takes.

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

    def __init__(self, path: str | Path, *, model: str | None = None, **settings: Any) -> None:
        self.path = Path(path)
        self.texts = TextStore(path)
        # A first attempt that failed may have left the name of its model, but no index.
        is_made = holds_index(path) and not settings.get("override")
        made_with = self.texts.model if is_made else None
        if model is not None and Path(model).is_dir():
            model = str(Path(model).resolve())
        if _is_gone(model):
            raise FileNotFoundError(f"there is no model in {model}")
        if model is not None and made_with not in (None, model) and not _is_gone(made_with):
            raise ValueError(f"{path} was made with the model {made_with}, not {model}")
        self.index = open_index(path, **settings)
        if settings.get("override"):
            self.texts.clear()
        name = model or made_with
        self._encoder = None if name is None else TextEncoder(name)

    def reopened(self) -> TextIndex:
        """Open the index once more, to see another state of it with the same model in memory."""
        other = TextIndex(self.path)
        other._encoder = self._encoder
        return other

    @property
    def encoder(self) -> TextEncoder:
        """The model."""
        if self._encoder is None:
            raise ValueError(f"nothing says which model {self.path} was made with: name it")
        if _is_gone(self._encoder.name):
            raise ValueError(
                f"the model that {self.path} was made with is gone from {self._encoder.name}: "
                "name the place where it is now"
            )
        return self._encoder

    @property
    def model(self) -> str | None:
        """Name or path of the model; None if nobody has said."""
        return None if self._encoder is None else self._encoder.name

    def __len__(self) -> int:
        return len(self.index)

    def about(self) -> dict[str, Any]:
        """Return what the index holds and how it was made, as JSON values."""
        index = self.index
        documents, nbytes = len(index), index.nbytes
        return {
            "path": str(self.path),
            "kind": index.kind,
            "documents": documents,
            "dim": index.dim,
            "bytes": nbytes,
            "bytes_per_document": round(nbytes / documents) if documents else 0,
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
            # Before the documents, so that an index that holds any says who made them.
            if self.texts.model != self.model:
                self.texts.model = self.encoder.name
        ids = [document.id for document in documents]
        with self._changing(documents):
            self.index.add_documents(ids, tokens)
        return len(documents)

    def remove(self, documents_ids: Sequence[DocumentId]) -> None:
        """Remove documents. An id that the index does not hold is an error and removes nothing."""
        with self._changing([TextDocument(document_id, "") for document_id in documents_ids]):
            self.index.remove_documents(documents_ids)

    @contextmanager
    def _changing(self, documents: Sequence[TextDocument]) -> Iterator[None]:
        """Change the texts of documents together with the index, in the block."""
        made: list[int] = []

        def write_texts(state: int) -> None:
            made.append(state)
            self.texts.put(documents, since=state)

        with self.index.accompanied(write_texts):
            yield
        self.texts.discard((document.id for document in documents), state=made[-1])

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
        found = self.index(embeddings, k=k, subset=subset, **options)
        all_ids = {hit["id"] for hits in found for hit in hits}
        texts = self.texts.get(all_ids, self.index.generation)
        answers = []
        for text, query, hits in zip(queries, encoded, found, strict=True):
            ids = [hit["id"] for hit in hits]
            contributions: list[NDArray[np.float32] | None] = [None] * len(hits)
            if explain:
                reasons = explain_found(self.index, query.embeddings, ids, **options)
                contributions = [reason.contributions for reason in reasons]
            described = [
                _described(hit, texts, text if isinstance(text, str) else "", contribution)
                for hit, contribution in zip(hits, contributions, strict=True)
            ]
            answers.append(Answer(described, query.tokens if isinstance(text, str) else None))
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
        held = [document_id for document_id in documents_ids if document_id in self.index]
        if not self.keeps_tokens:
            texts = {} if self._encoder is None else self.texts.get(held, self.index.generation)
            whole = [document.whole for document in texts.values()]
            tokens = self.encoder.documents(whole) if whole else []
            return {i: spectrum(matrix) for i, matrix in zip(texts, tokens, strict=True)}
        try:
            (tokens,) = self.index.get_documents_embeddings([held])
        except UnknownDocumentError:
            # Another thread has moved on to a state without one of them.
            return self.spectra(held)
        return {i: spectrum(matrix) for i, matrix in zip(held, tokens, strict=True)}


def _is_gone(model: str | None) -> bool:
    """Return whether a model was a folder that is no longer there."""
    return model is not None and Path(model).is_absolute() and not Path(model).is_dir()


def _described(
    hit: Any,
    texts: Mapping[DocumentId, TextDocument],
    query: str,
    contributions: NDArray[np.float32] | None,
) -> Hit:
    document = texts.get(hit["id"])
    if document is None:
        return Hit(hit["id"], hit["score"], contributions=contributions)
    part = snippet(document.text, query)
    return Hit(hit["id"], hit["score"], document.title, part, contributions)
