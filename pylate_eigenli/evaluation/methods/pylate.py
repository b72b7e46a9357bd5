"""PyLate's own indexes as methods.

They learn from the whole collection, so tokens are kept on disk and indexed at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import require
from ...indexes.databases import bytes_on_disk
from ...tokens import TokenBatch
from ..embeddings import StoredTokens
from .base import Candidates, Family, Hits, Method, hits_of


class PylateIndex(Method):
    """A collection in one of PyLate's indexes, built by :meth:`finish`.

    Documents that the index does not come across are missing from the hits, even if they are
    candidates.

    ``kind`` is the name of a class of ``pylate.indexes``, ``options`` are its arguments; ``needs``
    is the library that it needs and the extra that installs it, unless PyLate itself does.
    """

    def __init__(
        self, folder: Path, *, kind: str, needs: tuple[str, str] | None = None, **options: Any
    ) -> None:
        for library, extra in [("pylate", "pylate"), *([needs] if needs else [])]:
            require(library, extra, f"PyLate's {kind} index")
        self._tokens = StoredTokens(folder / "tokens")
        self._folder = folder / "index"
        self._kind, self._options = kind, options
        self._index: Any = None

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, documents: TokenBatch) -> None:
        if self._index is not None:
            raise ValueError(f"{self._kind} was built already: documents cannot be added any more")
        self._tokens.append(documents)

    def finish(self) -> None:
        if self._index is None:
            embeddings = [tokens for _, batch in self._tokens for tokens in _arrays(batch)]
            self._index = self._made(embeddings[0].shape[1])
            self._index.add_documents([str(row) for row in range(len(embeddings))], embeddings)

    def _made(self, dim: int) -> Any:
        from pylate import indexes

        folder = str(self._folder)
        return getattr(indexes, self._kind)(folder, "index", override=True, **self._options)

    def search(self, queries: TokenBatch, k: int, candidates: Candidates = None) -> list[Hits]:
        self.finish()
        subset = None if candidates is None else [[str(row) for row in rows] for rows in candidates]
        return [hits_of(results) for results in self._search(_arrays(queries), k, subset)]

    def _search(self, queries: list[Any], k: int, subset: list[list[str]] | None) -> Any:
        return self._index(queries, k=k, subset=subset)

    @property
    def nbytes(self) -> int:
        return bytes_on_disk(str(self._folder))

    def close(self) -> None:
        self._index = None


class TokenVoyager(PylateIndex):
    """PyLate's Voyager index of single tokens: it finds tokens, then scores their documents."""

    def __init__(self, folder: Path, *, k_token: int = 200) -> None:
        super().__init__(folder, kind="Voyager", needs=("voyager", "voyager"))
        self._k_token = k_token

    def _made(self, dim: int) -> Any:
        self._options = {"embedding_size": dim}
        made = super()._made(dim)
        made.index = _TakesLists(made.index)
        return made

    def _search(self, queries: list[Any], k: int, subset: list[list[str]] | None) -> Any:
        from pylate import retrieve

        if subset is not None:
            raise ValueError("voyager searches all documents: it cannot rerank candidates")
        retriever = retrieve.ColBERT(index=self._index)
        return retriever.retrieve(queries, k=k, k_token=self._k_token)


class _TakesLists:
    """A Voyager index for PyLate 1.6, which passes lists of vectors; Voyager 2.2 wants arrays."""

    def __init__(self, index: Any) -> None:
        self._index = index

    def add_items(self, vectors: Sequence[Any]) -> Any:
        return self._index.add_items(np.asarray(vectors))

    def query(self, vectors: Sequence[Any], k: int, **options: Any) -> Any:
        return self._index.query(np.asarray(vectors), k, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)


def _arrays(batch: TokenBatch) -> list[Any]:
    """Return the token vectors of each item as float32, which PyLate's indexes expect."""
    return [tokens.float().cpu().numpy() for tokens in batch]


# PLAID's Triton kernels do not give the same centroids twice.
_plaid = partial(PylateIndex, kind="PLAID", use_triton=False, show_progress=False, device="cpu")
_warp = partial(PylateIndex, kind="WARP", needs=("xtr_warp", "warp"))
_tachiom = partial(PylateIndex, kind="TachiomIndex", needs=("tachiom", "tachiom"))

FAMILIES = (
    Family("plaid", _plaid, is_maxsim=True, learns=True),
    Family("warp", _warp, is_maxsim=True, learns=True),
    Family("tachiom", _tachiom, is_maxsim=True, learns=True),
    Family("voyager", TokenVoyager, is_maxsim=True, learns=True),
)
