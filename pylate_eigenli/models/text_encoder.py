"""TextEncoder: a model of PyLate or of sentence-transformers 6 as an encoder of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from .encoder import Advance, Embeddings, LazyEncoder, ignore
from .text_models import TextModel, adapted, load_model

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CHUNK = 32  # texts per call, the batch size of both libraries; progress is reported after each


class TextEncoder(LazyEncoder[TextModel]):
    """A late-interaction model as an :class:`pylate_eigenli.models.encoder.Encoder` of texts.

    PyLate loads it by its name or path, or sentence-transformers 6, whichever is installed.

    Examples
    --------
    >>> encoder = TextEncoder("lightonai/GTE-ModernColBERT-v1")  # loads nothing yet
    >>> encoder.name
    'lightonai/GTE-ModernColBERT-v1'
    """

    def __init__(self, name: str) -> None:
        from .default import name_of  # which imports this module

        super().__init__(name)
        self.name = name_of(self.name)

    def _load(self) -> TextModel:
        from .default import located

        return adapted(load_model(located(self.name)))

    @property
    def document_length(self) -> int:
        """Number of tokens that the model reads of a document, without those it adds."""
        with self._in_use:
            return self._model.document_length

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """A copy of the model's tokenizer that cuts nothing off."""
        with self._in_use:
            return self._model.tokenizer

    def encode_documents(self, documents: Sequence[str], advance: Advance = ignore) -> Embeddings:
        return encode_in_chunks(partial(self._encode, is_query=False), documents, advance)

    def encode_queries(self, queries: Sequence[str]) -> Embeddings:
        return encode_in_chunks(partial(self._encode, is_query=True), queries)

    def _encode(self, texts: Sequence[str], is_query: bool) -> Embeddings:
        # Locked for one chunk, so that queries of other threads need not wait for all documents.
        with self._in_use:
            return self._model.encode(texts, is_query=is_query)

    def query_tokens(self, queries: Sequence[str]) -> list[list[str]]:
        if not queries:
            return []
        with self._in_use:
            return self._model.query_tokens(queries)


def encode_in_chunks(
    encode: Callable[[Sequence[str]], Embeddings], texts: Sequence[str], advance: Advance = ignore
) -> Embeddings:
    """Encode texts of similar length together, to save padding; return them in their order."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
    embeddings: Embeddings = []
    for start in range(0, len(order), _CHUNK):
        chunk = order[start : start + _CHUNK]
        embeddings += encode([texts[i] for i in chunk])
        advance(len(chunk))
    by_position = dict(zip(order, embeddings, strict=True))
    return [by_position[i] for i in range(len(texts))]
