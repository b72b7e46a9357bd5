"""TextIndex: texts searched by texts."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from tqdm.auto import tqdm

from ..models.default import FITTED_DOCUMENTS, default_model
from ..models.text_encoder import TextEncoder
from ..storage import DocumentId
from ..storage.ids import checked_ids
from .corpus_index import CorpusIndex
from .document import Document, content_id
from .metadata import Value, checked
from .passages import Cutter
from .records import Fields
from .sources import Part, Source, open_source
from .updating import update

_LIKELY_QUERIES = 256
_PER_COMMIT = 1024
Metadata: TypeAlias = Mapping[str, Value | None]


class TextIndex(CorpusIndex):
    """Texts to search by questions: an index, its texts and metadata, and the model in one folder.

    A standardised index (``preset="plus"``) learns the statistics of queries from the beginnings of
    its first texts, which the model encodes as queries. Real queries improve on them:
    ``index.index.fit_queries(...)``.

    Parameters
    ----------
    folder
        The folder of the index; made by the first texts.
    model
        Name or path of a model of PyLate or sentence-transformers, or a
        :class:`pylate_eigenli.models.text_encoder.TextEncoder`. By default the one the index was
        made with; another one is refused. For a new index the default is a small model that comes
        with the extra ``minilm`` and needs no network.
    override
        Whether the first texts replace all that the index holds. Until they are committed, the
        old ones stay, whatever fails.
    trust_index
        Whether to use a model or a database that only the folder names, or the ANN structure of
        somebody else, although they can run code. What you have named or built yourself, models of
        the Hub and the default model are used anyway.
    settings
        Options of :class:`pylate_eigenli.EigenLIIndex`, or with ``single_vector=True`` those of
        :class:`pylate_eigenli.EigenLISVIndex`, such as ``backend="qdrant"``.

    Examples
    --------
    >>> import tempfile
    >>> from pylate_eigenli import TextIndex
    >>> index = TextIndex(tempfile.mkdtemp())
    >>> texts = ["Cats sleep most of the day.", "Bread needs flour, water and salt."]
    >>> index.add(texts, ids=["cats", "bread"], metadata=[{"year": 2021}, {"year": 2024}])
    ['cats', 'bread']
    >>> hit = index.search("How do I bake a loaf?", top=1)[0]
    >>> hit.id, hit.text, hit.metadata
    ('bread', 'Bread needs flour, water and salt.', {'year': 2024})
    >>> [hit.id for hit in index.search("How do I bake a loaf?", where={"year": {"lt": 2022}})]
    ['cats']
    >>> len(index.explain("a loaf", "bread")) > 2  # tokens and their contributions
    True
    >>> index.remove("cats")  # or the name of a file
    ['cats']
    >>> len(index)
    1
    """

    holds = "texts"

    def add(
        self,
        texts: Sequence[str] | Path | Sequence[Path],
        *,
        ids: Sequence[DocumentId] | None = None,
        titles: Sequence[str] | None = None,
        metadata: Metadata | Sequence[Metadata] | None = None,
        fields: Mapping[str, str] | None = None,
        show_progress: bool = False,
    ) -> list[DocumentId]:
        """Add texts, or files given as ``Path``; return the ids of their documents.

        A text is one document, of which the model reads the beginning (180 tokens for the default
        model). A file is cut into passages that the model reads whole, named ``notes.txt#1`` and so
        on; a record of JSON lines or of a table is one document. What the index holds already is not
        encoded again; a document with the id of another replaces it, and so do the passages of a
        file that has changed. A thousand texts are committed at a time. A warning names files that
        are left out.

        Parameters
        ----------
        texts
            Texts, or paths of what :func:`pylate_eigenli.corpus.sources.open_source` reads: files
            and folders of files; one or several.
        ids
            Strings or integers, of texts only. By default made from the contents, so that nothing
            is added twice.
        titles
            A title for each text, which the model reads too.
        metadata
            A dictionary for each text or path, or one for all, of strings, numbers and booleans;
            None stands for no value.
        fields
            The names of the fields ``id``, ``text`` and ``title`` in files of records, such as
            ``{"text": "body"}``. All other fields become metadata.
        show_progress
            Whether to show a progress bar.

        Examples
        --------
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "bread.md").write_text("# Bread\\n\\nIt needs flour, water and salt.")
        >>> index = TextIndex(folder / "index")
        >>> index.add(folder / "bread.md", metadata={"lang": "en"})
        ['bread.md#1']
        >>> index.search("flour")[0].title
        'Bread'
        """
        given = [texts] if isinstance(texts, Path) else texts
        _check_items(given, ids=ids, titles=titles, metadata=metadata)
        if not len(given):
            return []
        if metadata is None or isinstance(metadata, Mapping):
            metadata = [metadata or {}] * len(given)
        if not isinstance(given[0], Path):
            documents = _documents(given, ids, titles, metadata)
            source = Source(lambda _: (Part([d]) for d in documents), len(documents))
            return self._add(source, {}, show_progress)
        if ids is not None or titles is not None:
            raise ValueError("ids and titles are for texts: files have names")
        of_paths = [checked(m, str(path)) for m, path in zip(metadata, given, strict=True)]
        # A wrong path changes nothing.
        sources = [open_source(path, Fields(**fields or {})) for path in given]
        return [
            document_id
            for source, of_source in zip(sources, of_paths, strict=True)
            for document_id in self._add(source, of_source, show_progress)
        ]

    def _add(
        self, source: Source, metadata: Mapping[str, Value], show_progress: bool
    ) -> list[DocumentId]:
        """Add the documents of a source, all with further metadata; return their ids."""
        ids: list[DocumentId] = []
        # Files are read again if their metadata change.
        mark = f"-{content_id('', '', metadata)}" if metadata else ""

        def parts() -> Iterator[Part]:
            for part in source.parts(self.cut):
                documents = [
                    replace(
                        document,
                        metadata={**metadata, **document.metadata},
                        fingerprint=document.fingerprint and document.fingerprint + mark,
                    )
                    for document in part.documents
                ]
                ids.extend(document.id for document in documents)
                yield replace(part, documents=documents, fingerprint=part.fingerprint + mark)

        with tqdm(total=source.total, desc="Adding", disable=not show_progress) as bar:
            update(self, parts(), commit_size=_PER_COMMIT, progress=lambda n, _: bar.update(n))
        for line in source.unreadable:
            warnings.warn(f"skipped: {line}", stacklevel=3)
        return ids

    def _encoder_of(self, name: str) -> TextEncoder:
        return TextEncoder(name)

    def _default_encoder(self) -> TextEncoder:
        # It takes a quarter of a minute, once: a bar appears after a second.
        bar = tqdm(total=FITTED_DOCUMENTS, desc="Making the model, once", delay=1, disable=None)
        try:
            with bar:
                return TextEncoder(default_model(advance=bar.update))
        except ImportError as error:
            raise ImportError(f"name a model with model= or --model; {error}") from error

    def contents(self, documents: Sequence[Document]) -> list[Any]:
        """Return the texts that the model reads, with their titles."""
        return [document.whole for document in documents]

    def likely_queries(self, documents: Sequence[Document]) -> list[str]:
        """Return the first 3 to 16 words of texts."""
        chosen = documents[:: max(1, len(documents) // _LIKELY_QUERIES)]
        words = [document.whole.split() for document in chosen]
        texts = [" ".join(text[: 3 + i % 14]) for i, text in enumerate(words)]
        return [text for text in texts if text]

    @property
    def cut(self) -> Cutter:
        """Cuts texts into passages that the model of the index reads whole."""
        encoder = self.encoder
        assert isinstance(encoder, TextEncoder)
        return Cutter(encoder.tokenizer, encoder.document_length)


def _check_items(given: Any, **options: Any) -> None:
    """Refuse what are no texts or paths, and options of another number."""
    if isinstance(given, (str, bytes)):
        raise TypeError('add takes a list of texts, or files as Path("name"); got one string')
    if len({isinstance(item, Path) for item in given}) > 1:
        raise TypeError("texts and paths cannot be added together")
    if len(given) and all(isinstance(text, str) and _is_name(text) for text in given):
        raise ValueError(f"{given[0]!r} is a file or folder: Path({given[0]!r}) adds its contents")
    for name, items in options.items():
        several = items is not None and not isinstance(items, Mapping)
        if several and len(items) != len(given):
            raise ValueError(f"there are {len(given):,} texts, but {len(items):,} {name}")


def _is_name(text: str) -> bool:
    return ("/" in text or "." in text) and os.path.exists(text)


def _documents(
    texts: Sequence[Any],
    ids: Sequence[DocumentId] | None,
    titles: Sequence[str] | None,
    metadata: Sequence[Metadata],
) -> list[Document]:
    """Return texts as documents; refuse whatever is wrong with one of them."""
    chosen = [None] * len(texts) if ids is None else checked_ids(ids)
    documents = []
    for i, (text, document_id) in enumerate(zip(texts, chosen, strict=True)):
        owner = i if document_id is None else document_id
        title = "" if titles is None else titles[i]
        for part in (text, title):
            if not isinstance(part, str):
                raise TypeError(
                    f"text and title of document {owner!r} must be strings, got a "
                    f"{type(part).__name__}"
                )
        if not text.strip() and not title.strip():
            raise ValueError(f"the text of document {owner!r} is empty")
        values = checked(metadata[i], owner)
        if document_id is None:
            document_id = content_id(title, text, values)
        documents.append(Document(document_id, text, title, metadata=values))
    return documents
