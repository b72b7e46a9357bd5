"""TextIndex: texts searched by texts."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from ..models.default import default_model
from ..models.text_encoder import TextEncoder
from ..storage import DocumentId
from ..storage.ids import checked_ids
from .corpus_index import CorpusIndex
from .document import Document
from .metadata import Value, checked
from .passages import Cutter
from .sources import open_source
from .updating import Update, update

_LIKELY_QUERIES = 256
_TEXTS_PER_COMMIT = 1024
_PASSAGES_PER_COMMIT = 128


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
        Whether to use a model or a database that only the folder names, although it can run code.
        What you have named yourself, models of the Hub and the default model are used anyway.
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
    >>> index.remove("cats")
    >>> len(index)
    1
    """

    holds = "texts"

    def add(
        self,
        texts: Sequence[str],
        *,
        ids: Sequence[DocumentId] | None = None,
        titles: Sequence[str] | None = None,
        metadata: Sequence[Mapping[str, Value | None]] | None = None,
        show_progress: bool = False,
    ) -> list[DocumentId]:
        """Add texts, in place of those with the same ids; return their ids.

        Each text is one document, of which the model reads the beginning (180 tokens for the default
        model); :meth:`add_files` cuts long texts. A thousand texts are committed at a time.

        Parameters
        ----------
        texts
            The texts.
        ids
            Strings or integers. By default made from the contents, so that nothing is added twice.
        titles
            A title for each text, which the model reads too.
        metadata
            A dictionary for each text, of strings, numbers and booleans; None stands for no value.
        show_progress
            Whether to show a progress bar.
        """
        documents = _documents(texts, ids, titles, metadata)
        # Of several texts with one id, the last one counts.
        unique = list({document.id: document for document in documents}.values())
        with tqdm(
            total=len(unique), desc="Adding texts", unit="text", disable=not show_progress
        ) as bar:
            for begin in range(0, len(unique), _TEXTS_PER_COMMIT):
                chunk = unique[begin : begin + _TEXTS_PER_COMMIT]
                self.add_documents(chunk, advance=bar.update)
        return [document.id for document in documents]

    def add_files(
        self, paths: str | Path | Sequence[str | Path], *, show_progress: bool = False
    ) -> Update:
        """Add files, or all files of folders, cut into passages that the model reads whole.

        Files that the index holds are skipped if they have not changed, and replaced if they have.
        A warning names files that cannot be read.

        Parameters
        ----------
        paths
            What :func:`pylate_eigenli.corpus.sources.open_source` reads, one or several.
        show_progress
            Whether to show a progress bar.

        Returns
        -------
        The numbers of passages that were added, left unchanged and removed.
        """
        several = [paths] if isinstance(paths, (str, Path)) else paths
        sources = [open_source(str(path)) for path in several]  # a wrong path changes nothing
        total = Update()
        for source in sources:
            with tqdm(
                total=source.total, desc="Adding files", unit="file", disable=not show_progress
            ) as bar:
                done = update(
                    self,
                    source.parts(self.cut),
                    commit_size=_PASSAGES_PER_COMMIT,
                    progress=lambda parts, _, bar=bar: bar.update(parts),  # type: ignore[misc]
                )
            for line in source.unreadable:
                warnings.warn(f"skipped: {line}", stacklevel=2)
            total = total.plus(done)
        return total

    def _encoder_of(self, name: str) -> TextEncoder:
        return TextEncoder(name)

    def _default_encoder(self) -> TextEncoder:
        try:
            return TextEncoder(default_model())
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


def _documents(
    texts: Sequence[str],
    ids: Sequence[DocumentId] | None,
    titles: Sequence[str] | None,
    metadata: Sequence[Mapping[str, Value | None]] | None,
) -> list[Document]:
    """Return texts as documents; refuse whatever is wrong with one of them."""
    if isinstance(texts, (str, bytes)):
        raise TypeError("add takes a list of texts, got one string; add_files reads files")
    given: dict[str, Sequence[Any] | None] = {"ids": ids, "titles": titles, "metadata": metadata}
    for name, items in given.items():
        if items is not None and len(items) != len(texts):
            raise ValueError(f"there are {len(texts):,} texts, but {len(items):,} {name}")
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
        values = {} if metadata is None else checked(metadata[i], owner)
        if document_id is None:
            content = json.dumps([title, text, sorted(values.items())]).encode()
            document_id = hashlib.sha256(content).hexdigest()[:16]
        documents.append(Document(document_id, text, title, metadata=values))
    return documents
