"""TextIndex: texts searched by texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..models.text_encoder import TextEncoder
from .catalogue import Document
from .corpus_index import CorpusIndex
from .passages import Cutter

_LIKELY_QUERIES = 256


class TextIndex(CorpusIndex):
    """An index together with the texts of its documents and the model that encodes them.

    A standardised index (``preset="plus"``) learns the statistics of queries from the beginnings of
    its first texts, which the model encodes as queries. Real queries improve on them:
    ``index.index.fit_queries(...)``.

    Parameters
    ----------
    path
        The folder of an index.
    model
        A :class:`pylate_eigenli.models.text_encoder.TextEncoder`, or the name or path of a model of
        PyLate or sentence-transformers. By default the one the index was made with; another one is
        refused.
    override, trust_index, settings
        As for :class:`pylate_eigenli.corpus.corpus_index.CorpusIndex`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> index = TextIndex(tempfile.mkdtemp(), k=2)
    >>> apple = Document("apple", "Apples are red. They grow on trees.", title="Fruit")
    >>> index.add([apple], [np.eye(8, dtype=np.float32)[:4]])
    1
    >>> index.search([np.eye(8, dtype=np.float32)[:2]], k=1)[0].hits[0].snippet
    'Apples are red. They grow on trees.'
    """

    holds = "texts"

    def _encoder_of(self, name: str) -> TextEncoder:
        return TextEncoder(name)

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
