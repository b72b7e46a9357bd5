"""From texts to token embeddings, with any PyLate model."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pylate import models

_SECONDS_FOR_HUB = 10.0
_CHUNK = 32  # texts encoded between two signs of progress; what PyLate encodes at a time anyway

Advance = Callable[[int], None]
"""Told how many more texts are encoded."""


class EncodedQuery(NamedTuple):
    """A query's tokens as strings and their embeddings. Shape: (tokens, d), float32.

    Examples
    --------
    >>> EncodedQuery(["red", "apple"], np.eye(2, 8, dtype=np.float32)).embeddings.shape
    (2, 8)
    """

    tokens: list[str]
    embeddings: NDArray[np.float32]


def ignore(_: int) -> None:
    """Take no notice of progress."""


def load_model(name_or_path: str, **options: Any) -> models.ColBERT:
    """Load any PyLate model, from a folder or from the Hugging Face Hub.

    Parameters
    ----------
    name_or_path
        A folder, or a name on the Hub. Where the Hub cannot be reached, what was downloaded
        before is used.
    options
        Further arguments of ``pylate.models.ColBERT``.
    """
    from pylate import models

    is_local = Path(name_or_path).is_dir() or not _is_on_hub(name_or_path)
    # A download takes long enough to want its progress bar.
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
    """Return whether a model is on the Hub; False if that cannot be reached.

    Asked once, because the libraries ask for every file of a model many times over, for more than
    a minute, before they give up.
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
        return True  # its own error says what to do
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
    # Texts of one length together, so that little is spent on padding.
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


class TextEncoder:
    """A PyLate model, loaded at its first use, that threads can share.

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

    def __init__(self, name: str) -> None:
        # The path of a folder, so that it means the same wherever the process is.
        self.name = str(Path(name).resolve()) if Path(name).is_dir() else name
        # A fast tokenizer fails if two threads use it at once.
        self._in_use = threading.RLock()

    @cached_property
    def _model(self) -> models.ColBERT:
        return load_model(self.name)

    @property
    def is_gone(self) -> bool:
        """Whether the model was a folder that is no longer there."""
        return Path(self.name).is_absolute() and not Path(self.name).is_dir()

    def load(self) -> None:
        """Load the model now rather than at its first use."""
        with self._in_use:
            self._model  # noqa: B018

    @property
    def document_length(self) -> int:
        """Number of tokens of a document that the model looks at."""
        with self._in_use:
            length: int = self._model.document_length  # type: ignore[assignment]
            return length

    def encode(self, texts: list[str], **options: Any) -> Any:
        """Call the model's own ``encode``, one thread at a time."""
        with self._in_use:
            return self._model.encode(texts, **options)

    def documents(
        self, texts: Sequence[str], advance: Advance = ignore
    ) -> list[NDArray[np.float32]]:
        """Encode documents. Shape of each: (tokens, d), float32."""
        # Chunk by chunk, so that a long list of documents does not keep queries waiting.
        return encode(self, texts, advance=advance)

    def queries(self, texts: Sequence[str]) -> list[EncodedQuery]:
        """Encode queries, and say which token each row of their embeddings belongs to."""
        if not texts:
            return []
        encoded = self.encode(
            list(texts), is_query=True, show_progress_bar=False, output_value=None
        )
        columns = zip(
            encoded["input_ids"], encoded["token_embeddings"], encoded["masks"], strict=True
        )
        with self._in_use:
            names = self._model.tokenizer.convert_ids_to_tokens
            return [
                EncodedQuery(names(ids[kept].tolist()), embeddings[kept])
                for ids, embeddings, kept in columns
            ]
