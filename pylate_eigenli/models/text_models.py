"""Late-interaction models of PyLate and of sentence-transformers 6, behind one interface.

PyLate's ``ColBERT`` reads its own checkpoints. sentence-transformers' ``MultiVectorEncoder`` reads
them too, and those that it has saved itself. The two libraries exclude each other today: PyLate
pins an older sentence-transformers.
"""

from __future__ import annotations

import inspect
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import missing
from .encoder import Embeddings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Library = Literal["pylate", "sentence-transformers"]

_SECONDS_FOR_HUB = 10.0
_SETTINGS = "config_sentence_transformers.json"


class TextModel(ABC):
    """A loaded late-interaction model of either library."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @abstractmethod
    def encode(self, inputs: Sequence[Any], *, is_query: bool, **options: Any) -> Embeddings:
        """Encode queries or documents."""

    @property
    @abstractmethod
    def document_length(self) -> int:
        """Number of tokens that the model reads of a document, without those it adds."""

    @abstractmethod
    def query_tokens(self, queries: Sequence[str]) -> list[list[str]]:
        """Return the token that each row of a query's embeddings belongs to."""

    @property
    def tokenizer(self) -> Tokenizer:
        """A copy of the model's tokenizer that cuts nothing off."""
        from tokenizers import Tokenizer

        copy = Tokenizer.from_str(self.model.tokenizer.backend_tokenizer.to_str())
        copy.no_truncation()
        copy.no_padding()
        return copy


class ColBERTModel(TextModel):
    """PyLate's ``ColBERT``, or a model with its ``encode``, such as VisionColBERT.

    Examples
    --------
    >>> class Letters:
    ...     def encode(self, texts, *, is_query, show_progress_bar):
    ...         return [np.eye(26)[[ord(letter) - 97 for letter in text]] for text in texts]
    >>> ColBERTModel(Letters()).encode(["red"], is_query=True)[0].shape
    (3, 26)
    """

    def encode(self, inputs: Sequence[Any], *, is_query: bool, **options: Any) -> Embeddings:
        options = {"show_progress_bar": False, **options}
        return _arrays(self.model.encode(list(inputs), is_query=is_query, **options))

    @property
    def document_length(self) -> int:
        # PyLate puts a token before each document that marks it as one.
        added = self.model.tokenizer.num_special_tokens_to_add() + 1
        return int(self.model.document_length - added)

    def query_tokens(self, queries: Sequence[str]) -> list[list[str]]:
        features = self.model.tokenize(list(queries), is_query=True)
        kept = features["attention_mask"].bool()
        if self.model.do_query_expansion:  # then mask tokens count as well
            kept = kept | True
        names = self.model.tokenizer.convert_ids_to_tokens
        rows = zip(features["input_ids"], kept, strict=True)
        return [names(ids[mask].tolist()) for ids, mask in rows]


class MultiVectorModel(TextModel):
    """sentence-transformers' ``MultiVectorEncoder``, whose tensors are on the model's device."""

    def encode(self, inputs: Sequence[Any], *, is_query: bool, **options: Any) -> Embeddings:
        encode = self.model.encode_query if is_query else self.model.encode_document
        # Arrays leave the device batch by batch.
        options = {"show_progress_bar": False, **options, "convert_to_numpy": True}
        return _arrays(encode(list(inputs), **options))

    @property
    def document_length(self) -> int:
        limit = getattr(self.model[0], "document_length", None) or self.model.get_max_seq_length()
        roles = ("document", "passage", "corpus")  # the first that the model has is used
        prompts = self.model.prompts
        prompt = next((prompts[role] for role in roles if role in prompts), "")
        tokenizer = self.model.tokenizer
        added = tokenizer.num_special_tokens_to_add() + len(tokenizer.tokenize(prompt or ""))
        return int(limit - added)

    def query_tokens(self, queries: Sequence[str]) -> list[list[str]]:
        rows = self.model.encode_query(list(queries), output_value=None, show_progress_bar=False)
        names = self.model.tokenizer.convert_ids_to_tokens
        return [names(row["input_ids"][row["attention_mask"].bool()].tolist()) for row in rows]


def adapted(model: Any) -> TextModel:
    """Return a model of either library, or one with PyLate's ``encode``, behind one interface."""
    if is_multi_vector(model):
        return MultiVectorModel(model)
    if hasattr(model, "encode"):
        return ColBERTModel(model)
    raise TypeError(f"{type(model).__name__} is neither PyLate's ColBERT nor a MultiVectorEncoder")


def takes_lists(model: Any) -> bool:
    """Return whether a model has PyLate's ``encode(texts, is_query=...)``."""
    encode = getattr(model, "encode", None)
    return encode is not None and "is_query" in inspect.signature(encode).parameters


def is_multi_vector(model: Any) -> bool:
    """Return whether a model is a MultiVectorEncoder, without importing its library."""
    return "MultiVectorEncoder" in (base.__name__ for base in type(model).__mro__)


def installed_library() -> Library:
    """Return the installed library that loads models."""
    if _has("pylate"):
        return "pylate"
    if _has("sentence-transformers", 6):
        return "sentence-transformers"
    raise missing(
        "encoding texts needs PyLate or sentence-transformers 6", "pylate", "sentence-transformers"
    )


def _has(distribution: str, major: int = 0) -> bool:
    try:
        return int(version(distribution).split(".")[0]) >= major
    except PackageNotFoundError:
        return False


def load_model(name_or_path: str, **options: Any) -> Any:
    """Load a late-interaction model, from a folder or from the Hugging Face Hub.

    Parameters
    ----------
    name_or_path
        A folder, or a name on the Hub. If the Hub cannot be reached, the files that were
        downloaded before are used.
    options
        Settings of ``pylate.models.ColBERT`` that replace those of the checkpoint. A
        MultiVectorEncoder takes ``document_length``, ``query_length``, ``do_query_expansion`` and
        ``skiplist_words``.

    Returns
    -------
    A ``pylate.models.ColBERT`` or a ``sentence_transformers.MultiVectorEncoder``.
    """
    library = installed_library()
    is_local = Path(name_or_path).is_dir() or not _is_on_hub(name_or_path)
    # A download shows its progress bar.
    with quiet_transformers() if is_local else nullcontext():
        try:
            if library == "pylate" and not _saved_by_multi_vector(name_or_path, is_local):
                from pylate import models

                return models.ColBERT(name_or_path, local_files_only=is_local, **options)
            if not _has("sentence-transformers", 6):
                raise missing(
                    f"{name_or_path} is a model of sentence-transformers 6, which excludes PyLate",
                    "sentence-transformers",
                )
            from sentence_transformers import MultiVectorEncoder

            model = MultiVectorEncoder(name_or_path, local_files_only=is_local)
            return _configured(model, **options) if options else model
        except OSError as error:
            if is_local and not Path(name_or_path).is_dir():
                raise OSError(
                    f"the model {name_or_path} is not a folder, was not downloaded before, and "
                    "huggingface.co cannot be reached"
                ) from error
            raise


def _saved_by_multi_vector(name: str, is_local: bool) -> bool:
    """Return whether a checkpoint is a MultiVectorEncoder's own; PyLate would misread it."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    path = Path(name) / _SETTINGS
    if not Path(name).is_dir():
        try:
            path = Path(hf_hub_download(name, _SETTINGS, local_files_only=is_local))
        except EntryNotFoundError:
            return False
    if not path.is_file():
        return False
    return bool(json.loads(path.read_text("utf-8")).get("model_type") == "MultiVectorEncoder")


def _configured(
    model: Any,
    *,
    document_length: int | None = None,
    query_length: int | None = None,
    do_query_expansion: bool | None = None,
    skiplist_words: list[str] | None = None,
) -> Any:
    """Set the options of PyLate's ColBERT where a MultiVectorEncoder has them: in its modules."""
    reader = model[0]
    if document_length is not None:
        reader.document_length = document_length
    expansion = reader.query_expansion
    length = query_length or (expansion or {}).get("length") or reader.query_length
    if do_query_expansion is False or (do_query_expansion is None and expansion is None):
        reader.query_expansion, reader.query_length = None, length
    else:
        reader.query_length = None
        defaults = {"strategy": "fixed", "attend": False}
        reader.query_expansion = {**defaults, **(expansion or {}), "length": length or 32}
    if skiplist_words is not None:
        for module in model:
            if hasattr(module, "skiplist_words"):
                module.skiplist_words = list(skiplist_words)
                module.resolve_with_tokenizer(model.tokenizer)
    return model


def _is_on_hub(name: str) -> bool:
    """Return whether a model is on the Hub; False if the Hub cannot be reached.

    The Hub is asked once, because the libraries retry every file of a model for more than a
    minute before they give up.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        HfApi().model_info(name, timeout=_SECONDS_FOR_HUB)
    except GatedRepoError:
        return True  # its own error has the remedy
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ValueError(f"there is no model {name}, neither a folder nor on the Hub") from error
    except Exception:  # the kinds of errors depend on the versions of two libraries
        return False
    return True


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


def _arrays(embeddings: Any) -> Embeddings:
    return [np.asarray(tokens, np.float32) for tokens in embeddings]
