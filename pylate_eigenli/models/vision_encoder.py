"""VisionEncoder: a vision model as an encoder of page images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .encoder import Advance, Embeddings, LazyEncoder, ignore

if TYPE_CHECKING:
    from .vision import VisionColBERT


class VisionEncoder(LazyEncoder["VisionColBERT"]):
    """A vision model as an :class:`pylate_eigenli.models.encoder.Encoder` of images.

    Parameters
    ----------
    name, options
        As for :class:`pylate_eigenli.models.vision.VisionColBERT`.
    batch_size
        Number of images to encode at a time.

    Examples
    --------
    >>> encoder = VisionEncoder("TomoroAI/tomoro-colqwen3-embed-4b")  # loads nothing yet
    >>> encoder.name
    'TomoroAI/tomoro-colqwen3-embed-4b'
    """

    def __init__(self, name: str, *, batch_size: int = 4, **options: Any) -> None:
        super().__init__(name)
        self.batch_size = batch_size
        self._options = options

    def _load(self) -> VisionColBERT:
        from .text_models import quiet_transformers
        from .vision import VisionColBERT

        with quiet_transformers():
            return VisionColBERT(self.name, **self._options)

    def encode_documents(self, documents: Sequence[Any], advance: Advance = ignore) -> Embeddings:
        embeddings: Embeddings = []
        for begin in range(0, len(documents), self.batch_size):
            batch = documents[begin : begin + self.batch_size]
            with self._in_use:
                embeddings += self._model.encode(batch, self.batch_size, is_query=False)
            advance(len(batch))
        return embeddings

    def encode_queries(self, queries: Sequence[str]) -> Embeddings:
        with self._in_use:
            embeddings: Embeddings = self._model.encode(queries)
        return embeddings

    def query_tokens(self, queries: Sequence[str]) -> list[list[str]]:
        with self._in_use:
            return self._model.query_tokens(queries)
