"""Token embeddings of a collection, computed once and kept as float16 files.

The folder of a set of texts is named by a hash of the model, of how it encodes and of the texts,
so that nothing stale is ever read. Files are memory-mapped; encoding goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

_TEXTS_PER_PART = 2048
# Attributes of models, PyLate's and this library's, that change what they make of a text or page.
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

    def __len__(self) -> int:
        return sum(len(offsets) - 1 for _, offsets in self.parts)

    def __getitem__(self, i: int) -> NDArray[np.float16]:
        for tokens, offsets in self.parts:
            if i < len(offsets) - 1:
                return tokens[offsets[i] : offsets[i + 1]]
            i -= len(offsets) - 1
        raise IndexError(i)

    @property
    def n_tokens(self) -> int:
        """Number of tokens of all texts."""
        return sum(len(tokens) for tokens, _ in self.parts)


def identity(model: Any, model_name: str) -> list[Any]:
    """Return what embeddings depend on besides the text, as values that ``json.dumps`` takes.

    The model itself is known by its name, and one in a folder also by when its files were written.
    """
    folder = Path(model_name)
    files = sorted(folder.rglob("*")) if folder.is_dir() else []
    written = [(str(file.relative_to(folder)), file.stat().st_mtime_ns) for file in files]
    return [model_name, written, [str(getattr(model, name, None)) for name in _OPTIONS]]


def fingerprint(model: Any, model_name: str, texts: Sequence[str], *, is_query: bool) -> str:
    """Return a hash of all that the embeddings of texts depend on."""
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
    """Encode texts with a PyLate model, or read what an earlier run has encoded.

    Parameters
    ----------
    model
        A ``pylate.models.ColBERT`` or anything with its ``encode``.
    model_name
        What the cache knows the model by.
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
                arrays = model.encode(
                    chunk, is_query=is_query, batch_size=batch_size, show_progress_bar=False
                )
                _save(lengths, np.array([len(array) for array in arrays], np.int64))
                # Written last: its presence says that the part is whole.
                _save(path, np.concatenate([np.asarray(a, np.float16) for a in arrays]))
            offsets = np.concatenate([[0], np.cumsum(np.load(lengths))])
            parts.append((np.load(path, mmap_mode="r"), offsets))
            bar.update(len(chunk))
    return TokenFile(tuple(parts))


def _save(path: Path, array: NDArray[Any]) -> None:
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        np.save(file, array)
    os.replace(temporary, path)
