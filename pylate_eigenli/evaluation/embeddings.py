"""Token embeddings of a collection, computed once and kept as float16 files.

The folder of a set of texts is named by a hash of the model, its encoding options and the texts,
so that nothing stale is read. Files are memory-mapped; an interrupted run continues.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm.auto import tqdm

from ..models.text_models import adapted, is_multi_vector
from ..storage.disk import replace_file
from ..tokens import offsets_of

_TEXTS_PER_PART = 2048
# Attributes of PyLate's and this library's models that change the embeddings.
_OPTIONS = (
    "query_prefix",
    "document_prefix",
    "query_length",
    "document_length",
    "do_query_expansion",
    "attend_to_expansion_tokens",
    "skiplist_words",
    "prompts",
    "default_prompt_name",
    "dtype",
    "revision",
    "max_visual_tokens",
    "image_tokens_only",
)


@dataclass(frozen=True)
class TokenFile:
    """Ragged token embeddings in memory-mapped parts; a sequence of (tokens, d) float16 arrays."""

    parts: tuple[tuple[NDArray[np.float16], NDArray[np.int64]], ...]

    @classmethod
    def of(cls, arrays: Sequence[ArrayLike]) -> TokenFile:
        """Return embeddings that are in memory, one (tokens, d) array per text."""
        items = [np.asarray(array, np.float16) for array in arrays]
        parts = []
        for begin in range(0, len(items), _TEXTS_PER_PART):
            part = items[begin : begin + _TEXTS_PER_PART]
            parts.append((np.concatenate(part), offsets_of([len(item) for item in part])))
        return cls(tuple(parts))

    def __len__(self) -> int:
        return sum(len(offsets) - 1 for _, offsets in self.parts)

    def __getitem__(self, i: int) -> NDArray[np.float16]:
        for tokens, offsets in self.parts:
            if i < len(offsets) - 1:
                return tokens[offsets[i] : offsets[i + 1]]
            i -= len(offsets) - 1
        raise IndexError(i)


def identity(model: Any, model_name: str) -> list[Any]:
    """Return the identity of a model as JSON values: embeddings depend on it and on the text.

    A model is identified by its name, and one in a folder also by the times its files were written.
    """
    folder = Path(model_name)
    files = sorted(folder.rglob("*")) if folder.is_dir() else []
    written = [(str(file.relative_to(folder)), file.stat().st_mtime_ns) for file in files]
    options = [str(getattr(model, name, None)) for name in _OPTIONS]
    if is_multi_vector(model):  # whose modules hold the options
        options += [str(module.get_config_dict()) for module in model]
    return [model_name, written, options]


def fingerprint(model: Any, model_name: str, texts: Sequence[str], *, is_query: bool) -> str:
    """Return a hash of everything that the embeddings of texts depend on."""
    digest = hashlib.sha256()
    digest.update(json.dumps([identity(model, model_name), is_query]).encode())
    for text in texts:
        digest.update(len(text).to_bytes(8, "little") + text.encode())
    return digest.hexdigest()[:20]


def encode_cached(
    model: Any,
    model_name: str,
    texts: Sequence[str],
    cache: str | Path,
    *,
    is_query: bool,
    batch_size: int = 32,
    show_progress: bool = True,
) -> TokenFile:
    """Encode texts, or read the embeddings of an earlier run.

    Parameters
    ----------
    model
        A ``pylate.models.ColBERT`` or any object with its ``encode``, or a
        ``sentence_transformers.MultiVectorEncoder``.
    model_name
        Name or path of the model, part of the hash.
    texts
        The texts.
    cache
        Folder for the files.
    is_query
        Whether the texts are queries.
    batch_size
        Texts per batch of the model.
    show_progress
        Whether to show a progress bar.
    """
    folder = Path(cache) / fingerprint(model, model_name, texts, is_query=is_query)
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    noun = "queries" if is_query else "documents"
    bar = tqdm(total=len(texts), desc=f"Encoding {noun}", disable=not show_progress)
    with bar:
        for begin in range(0, len(texts), _TEXTS_PER_PART):
            chunk = list(texts[begin : begin + _TEXTS_PER_PART])
            path = folder / f"{begin:09d}.npy"
            lengths = path.with_suffix(".lengths.npy")
            if not path.exists():
                encoder = adapted(model)
                encode = encoder.encode_queries if is_query else encoder.encode_documents
                arrays = encode(chunk, batch_size=batch_size)
                _save(lengths, np.array([len(array) for array in arrays], np.int64))
                # Written last: if it exists, the part is complete.
                _save(path, np.concatenate([np.asarray(a, np.float16) for a in arrays]))
            parts.append((np.load(path, mmap_mode="r"), offsets_of(np.load(lengths))))
            bar.update(len(chunk))
    return TokenFile(tuple(parts))


def _save(path: Path, array: NDArray[Any]) -> None:
    payload = io.BytesIO()
    np.save(payload, array)
    replace_file(path, payload.getvalue())
