"""Token embeddings in memory-mapped float16 files, and those of a collection, computed once.

The folder of a set of texts is named by a hash of the model, its encoding options and the texts,
so that nothing stale is read. An interrupted run continues.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tqdm.auto import tqdm

from ..models.fingerprint import fingerprint
from ..models.text_models import adapted
from ..storage.disk import make_folder, replace_file
from ..tokens import TokenBatch, offsets_of

_TEXTS_PER_PART = 2048


@dataclass(frozen=True)
class TokenFile:
    """Token embeddings of texts in parts: a sequence of (tokens, d) float16 arrays."""

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


class StoredTokens:
    """Token vectors of documents on disk, a float16 file per batch."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        make_folder(self.folder)

    @property
    def _parts(self) -> list[Path]:
        """The files of tokens in order; their names are the numbers of their first documents."""
        return sorted(path for path in self.folder.glob("*.npy") if path.stem.isdigit())

    def __len__(self) -> int:
        return sum(int(last.stem) + len(np.load(_lengths(last))) for last in self._parts[-1:])

    def append(self, batch: TokenBatch) -> None:
        """Write the next documents."""
        path = self.folder / f"{len(self):09d}.npy"
        _save(_lengths(path), batch.lengths)
        # Written last: if it exists, the part is complete.
        _save(path, batch.tokens.cpu().half().numpy())

    def __iter__(self) -> Iterator[tuple[int, TokenBatch]]:
        """Yield batches, each with the number of its first document."""
        for path in self._parts:
            # Copy on write, because torch wants arrays that it may write to.
            tokens = torch.from_numpy(np.load(path, mmap_mode="c"))
            yield int(path.stem), TokenBatch(tokens, offsets_of(np.load(_lengths(path))))

    @property
    def nbytes(self) -> int:
        """Size of the files."""
        return sum(p.stat().st_size + _lengths(p).stat().st_size for p in self._parts)


def _lengths(path: Path) -> Path:
    return path.with_suffix(".lengths.npy")


def embeddings_key(model: Any, model_name: str, texts: Sequence[str], *, is_query: bool) -> str:
    """Return a hash of everything that the embeddings of texts depend on."""
    known_by = [model_name, fingerprint(model, model_name), is_query]
    digest = hashlib.sha256(json.dumps(known_by).encode())
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
    """Encode texts, or read the embeddings of an earlier run from ``cache``.

    The model is a ``pylate.models.ColBERT``, any object with its ``encode``, or a
    ``sentence_transformers.MultiVectorEncoder``.
    """
    stored = StoredTokens(Path(cache) / embeddings_key(model, model_name, texts, is_query=is_query))
    noun = "queries" if is_query else "documents"
    done = len(stored)
    with tqdm(
        total=len(texts), initial=done, desc=f"Encoding {noun}", disable=not show_progress
    ) as bar:
        for begin in range(done, len(texts), _TEXTS_PER_PART):
            chunk = list(texts[begin : begin + _TEXTS_PER_PART])
            arrays = adapted(model).encode(chunk, is_query=is_query, batch_size=batch_size)
            tokens = torch.from_numpy(np.concatenate([np.asarray(a, np.float16) for a in arrays]))
            stored.append(TokenBatch(tokens, offsets_of([len(array) for array in arrays])))
            bar.update(len(chunk))
    return TokenFile(tuple((part.tokens.numpy(), part.offsets) for _, part in stored))


def _save(path: Path, array: NDArray[Any]) -> None:
    payload = io.BytesIO()
    np.save(payload, array)
    replace_file(path, payload.getvalue())
