"""PyLate's PLAID index as a searcher of the evaluation.

PLAID learns its centroids from the whole corpus, so that it is no method that encodes one document
after the other: tokens are collected, as float16, and indexed at the first search.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..indexes.exact_search import Hits
from ..tokens import TokenBatch


class Plaid:
    """A corpus in a PLAID index with PyLate's settings, in a folder that is removed in the end.

    It has the interface of :class:`.scanning.Scan`. Documents that PLAID does not come across are
    missing from the hits, even if they are candidates.
    """

    def __init__(self) -> None:
        self._tokens: list[NDArray[np.float16]] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._index: Any = None
        self._size = 0

    def append(self, key: str, tokens: Callable[[], TokenBatch]) -> None:
        """Add documents; nothing is kept between runs, so that ``key`` does not matter."""
        self.add(tokens())

    def add(self, documents: TokenBatch) -> None:
        """Add documents, before the index is built."""
        if self._index is not None:
            raise ValueError("documents cannot be added any more: the index has been built")
        self._tokens.extend(tokens.cpu().numpy().astype(np.float16) for tokens in documents)

    def build(self) -> None:
        """Index the documents, unless that has been done."""
        if self._index is not None:
            return
        from pylate import indexes

        self._size = len(self._tokens)
        self._folder = tempfile.TemporaryDirectory(prefix="eigenli-plaid-")
        index = indexes.PLAID(
            self._folder.name,
            "plaid",
            override=True,
            # Its Triton kernels do not give the same centroids twice.
            use_triton=False,
            show_progress=False,
        )
        index.add_documents(
            [str(row) for row in range(self._size)],
            [tokens.astype(np.float32) for tokens in self._tokens],
        )
        self._index, self._tokens = index, []

    def search(
        self,
        queries: TokenBatch,
        k: int,
        candidates: Sequence[NDArray[np.int64]] | None = None,
    ) -> list[Hits]:
        """Return the best k documents of each query; see :meth:`.scanning.Scan.search`."""
        self.build()
        subset = None if candidates is None else [[str(row) for row in rows] for rows in candidates]
        results = self._index([q.cpu().numpy() for q in queries], k=k, subset=subset)
        return [
            Hits(
                np.array([int(hit["id"]) for hit in result], np.int64),
                np.array([hit["score"] for hit in result], np.float32),
            )
            for result in results
        ]

    @property
    def nbytes_per_document(self) -> float:
        """What the files of the index take per document."""
        self.build()
        assert self._folder is not None
        files = (path for path in Path(self._folder.name).rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files) / self._size
