"""Models as indexes use them: queries and documents in, token embeddings out."""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from .fingerprint import fingerprint_of

Embeddings: TypeAlias = list[NDArray[np.float32]]
"""An array of shape (tokens, d) for each text or image."""
Advance = Callable[[int], object]
"""Called with the number of documents encoded since the last call."""

ModelT = TypeVar("ModelT")


def ignore(_: int) -> None:
    """Ignore progress."""


class Encoder(Protocol):
    """A model, as an index uses it; documents are texts or images.

    Examples
    --------
    >>> class Letters:
    ...     name = fingerprint = "letters"
    ...     def load(self):
    ...         pass
    ...     def encode_queries(self, queries):
    ...         return [np.eye(26, dtype=np.float32)[[ord(c) - 97 for c in q]] for q in queries]
    ...     def encode_documents(self, documents, advance=ignore):
    ...         return self.encode_queries(documents)
    ...     def query_tokens(self, queries):
    ...         return [list(query) for query in queries]
    >>> encoder: Encoder = Letters()
    >>> encoder.encode_queries(["red"])[0].shape
    (3, 26)
    """

    name: str
    """Name or absolute path of the model."""

    @property
    def fingerprint(self) -> str:
        """Changes with the weights and the settings of the model; empty if they are not known."""

    def load(self) -> None:
        """Load the model now rather than at its first use."""

    def encode_queries(self, queries: Sequence[str]) -> Embeddings:
        """Encode queries."""

    def encode_documents(self, documents: Sequence[Any], advance: Advance = ignore) -> Embeddings:
        """Encode documents; ``advance`` is called with the number of encoded ones."""

    def query_tokens(self, queries: Sequence[str]) -> list[list[str]]:
        """Return the token that each row of a query's embeddings belongs to."""


class LazyEncoder(Encoder, Generic[ModelT]):
    """A model of the Hub or of a folder, loaded at its first use, that threads can share.

    Examples
    --------
    >>> class Constant(LazyEncoder[float]):
    ...     def _load(self):
    ...         return 1.0
    >>> Constant("nobody/constant").name
    'nobody/constant'
    """

    def __init__(self, name: str) -> None:
        # An absolute path means the same in every working folder.
        self.name = str(Path(name).resolve()) if is_folder(name) else name
        # A fast tokenizer fails if two threads use it at once.
        self._in_use = threading.RLock()

    @abstractmethod
    def _load(self) -> ModelT:
        """Load the model."""

    @cached_property
    def _model(self) -> ModelT:
        return self._load()

    def load(self) -> None:
        with self._in_use:
            self._model  # noqa: B018

    @cached_property
    def fingerprint(self) -> str:
        """See :func:`pylate_eigenli.models.fingerprint.fingerprint_of`."""
        return fingerprint_of(self.name)


def is_folder(name: str) -> bool:
    """Return whether a model is a folder; the name may be any text, as an index may hold it.

    Examples
    --------
    >>> is_folder("/"), is_folder("nobody/colbert"), is_folder("\\0" * 9999)
    (True, False, False)
    """
    return os.path.isdir(name)  # Path.is_dir raises errors for names that no file can have


def is_gone(name: str) -> bool:
    """Return whether a model was a folder that no longer exists."""
    return Path(name).is_absolute() and not is_folder(name)
