"""TextEncoder: any PyLate model as an encoder of texts."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .encoder import Advance, LazyEncoder, ignore

if TYPE_CHECKING:
    from pylate import models
    from tokenizers import Tokenizer

_SECONDS_FOR_HUB = 10.0
_CHUNK = 32  # texts per call, PyLate's own batch size; progress is reported after each


def load_model(name_or_path: str, **options: Any) -> models.ColBERT:
    """Load any PyLate model, from a folder or from the Hugging Face Hub.

    Parameters
    ----------
    name_or_path
        A folder, or a name on the Hub. If the Hub cannot be reached, the files that were
        downloaded before are used.
    options
        Further arguments of ``pylate.models.ColBERT``.
    """
    from pylate import models

    is_local = Path(name_or_path).is_dir() or not _is_on_hub(name_or_path)
    # A download shows its progress bar.
    with quiet_transformers() if is_local else nullcontext():
        try:
            return models.ColBERT(name_or_path, local_files_only=is_local, **options)
        except OSError as error:
            if is_local and not Path(name_or_path).is_dir():
                raise OSError(
                    f"the model {name_or_path} is not a folder, was not downloaded before, and "
                    "huggingface.co cannot be reached"
                ) from error
            raise


def _is_on_hub(name: str) -> bool:
    """Return whether a model is on the Hub; False if the Hub cannot be reached.

    The Hub is asked once, because the libraries retry every file of a model for more than a
    minute before they give up.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
    )

    try:
        HfApi().model_info(name, timeout=_SECONDS_FOR_HUB)
    except GatedRepoError:
        return True  # its own error has the remedy
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ValueError(f"there is no model {name}, neither a folder nor on the Hub") from error
    except Exception:  # the kinds of errors depend on the versions of two libraries
        return False
    return True


def encode(
    model: models.ColBERT | TextEncoder,
    texts: Sequence[str],
    *,
    is_query: bool = False,
    advance: Advance = ignore,
) -> list[NDArray[np.float32]]:
    """Encode texts to unit token vectors.

    Parameters
    ----------
    model
        Any PyLate model.
    texts
        Documents, or queries if ``is_query``.
    advance
        Called with the number of texts encoded since the last call.

    Returns
    -------
    list[numpy.ndarray]
        One float32 array of shape (tokens, dimensions) per text, in the order of ``texts``.

    """
    # Texts of similar length together, to save padding.
    order = sorted(range(len(texts)), key=lambda position: len(texts[position]), reverse=True)
    embeddings: dict[int, NDArray[np.float32]] = {}
    for start in range(0, len(order), _CHUNK):
        chunk = order[start : start + _CHUNK]
        encoded: Any = model.encode(
            [texts[position] for position in chunk], is_query=is_query, show_progress_bar=False
        )
        embeddings.update(zip(chunk, encoded, strict=True))
        advance(len(chunk))
    return [embeddings[position] for position in range(len(texts))]


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep the loading reports and progress bars of transformers off the terminal."""
    from transformers.utils import logging as reports

    others = [logging.getLogger(name) for name in ("sentence_transformers", "pylate")]
    levels = [other.level for other in others]
    verbosity, bars = reports.get_verbosity(), reports.is_progress_bar_enabled()
    reports.set_verbosity(logging.ERROR)
    for other in others:
        other.setLevel(logging.ERROR)
    reports.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        reports.set_verbosity(verbosity)
        for other, level in zip(others, levels, strict=True):
            other.setLevel(level)
        if bars:
            reports.enable_progress_bar()  # type: ignore[no-untyped-call]


class TextEncoder(LazyEncoder["models.ColBERT"]):
    """A PyLate model as an :class:`pylate_eigenli.models.encoder.Encoder` of texts.

    Parameters
    ----------
    name
        Name or path of the model.

    Examples
    --------
    >>> encoder = TextEncoder("lightonai/GTE-ModernColBERT-v1")  # loads nothing yet
    >>> encoder.name
    'lightonai/GTE-ModernColBERT-v1'
    """

    def _load(self) -> models.ColBERT:
        return load_model(self.name)

    @property
    def document_length(self) -> int:
        """Number of tokens that the model reads of a document, special tokens not counted."""
        with self._in_use:
            model: Any = self._model
            # PyLate puts a token before each document that marks it as one.
            return int(model.document_length - model.tokenizer.num_special_tokens_to_add() - 1)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """A copy of the model's tokenizer that cuts nothing off."""
        from tokenizers import Tokenizer

        with self._in_use:
            copy = Tokenizer.from_str(self._model.tokenizer.backend_tokenizer.to_str())
        copy.no_truncation()
        copy.no_padding()
        return copy

    def encode(self, texts: list[str], **options: Any) -> Any:
        """Call the model's own ``encode``, one thread at a time."""
        with self._in_use:
            return self._model.encode(texts, **options)

    def encode_documents(
        self, documents: Sequence[str], advance: Advance = ignore
    ) -> list[NDArray[np.float32]]:
        """Encode documents. Shape of each: (tokens, d), float32."""
        # In chunks, so that queries of other threads need not wait for all documents.
        return encode(self, documents, advance=advance)

    def encode_queries(self, queries: Sequence[str]) -> list[NDArray[np.float32]]:
        """Encode queries. Shape of each: (tokens, d), float32."""
        return encode(self, queries, is_query=True)

    def query_tokens(self, queries: Sequence[str]) -> list[list[str]]:
        """Return the token that each row of a query's embeddings belongs to."""
        if not queries:
            return []
        with self._in_use:
            model: Any = self._model
            features = model.tokenize(list(queries), is_query=True)
            kept = features["attention_mask"].bool()
            if model.do_query_expansion:  # then mask tokens count as well
                kept = kept | True
            names = model.tokenizer.convert_ids_to_tokens
            rows = zip(features["input_ids"], kept, strict=True)
            return [names(ids[mask].tolist()) for ids, mask in rows]
