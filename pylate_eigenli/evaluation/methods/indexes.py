"""The indexes of this library as methods: what is measured is what users open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ...errors import check_positive
from ...indexes.ann.faiss import FaissBackend, FaissOptions
from ...indexes.eigenli import EigenLIIndex
from ...indexes.settings import SpectralOptions
from ...indexes.single_vector import EigenLISVIndex
from ...tokens import TokenBatch
from ...vectors.projection import SVProjection, TokenProjection
from ..embeddings import StoredTokens
from .base import Candidates, Family, Hits, Method, hits_of

_QUERIES_AT_ONCE = 256  # results are objects of Python before they are arrays


class IndexMethod(Method):
    """An index whose documents have the numbers of their rows as ids.

    A search finds at most ``limit`` documents, by default as many as are asked for. The index learns
    from the queries only if ``asked``.
    """

    def __init__(
        self,
        index: EigenLIIndex | EigenLISVIndex,
        limit: int | None = None,
        asked: bool = False,
    ) -> None:
        self.index = index
        self._limit = limit
        self._asked = asked

    def __len__(self) -> int:
        return len(self.index)

    def add(self, documents: TokenBatch) -> None:
        first = len(self)
        self.index.add_documents(range(first, first + len(documents)), list(documents))

    def finish(self) -> None:
        if isinstance(self.index, EigenLISVIndex):
            self.index.build()

    def fit_queries(self, queries: TokenBatch) -> None:
        if self._asked and self.index.settings.standardise and not self.index.knows_queries:
            self.index.fit_queries(list(queries))

    def search(self, queries: TokenBatch, k: int, candidates: Candidates = None) -> list[Hits]:
        items = list(queries)
        found: list[Hits] = []
        for begin in range(0, len(items), _QUERIES_AT_ONCE):
            part = slice(begin, begin + _QUERIES_AT_ONCE)
            subset = None if candidates is None else [rows.tolist() for rows in candidates[part]]
            results = self.index(items[part], k=min(k, self._limit or k), subset=subset)
            found += map(hits_of, results)
        return found

    @property
    def nbytes(self) -> int:
        return self.index.nbytes

    def close(self) -> None:
        self.index.close()


class Projected(IndexMethod):
    """An ``EigenLISVIndex`` with projections that are fitted to all documents.

    Tokens are kept in ``folder`` until :meth:`finish`, because the first documents alone would make
    worse projections. These are not counted as bytes, because they do not grow with the documents.
    ``make`` opens an index in a folder, with more options than it has.
    """

    def __init__(
        self,
        make: Callable[..., EigenLISVIndex],
        folder: Path,
        token_dim: int | None,
        dim: int | None,
        **options: Any,
    ) -> None:
        check_positive(or_none=True, token_dim=token_dim, dim=dim)
        self._make, self._folder = make, folder / "index"
        super().__init__(make(self._folder), **options)
        self._stored = StoredTokens(folder / "tokens")
        self._token_dim, self._dim, self._shared = token_dim, dim, 0

    def __len__(self) -> int:
        return len(self._stored)

    def add(self, documents: TokenBatch) -> None:
        self._stored.append(documents)

    def finish(self) -> None:
        if len(self.index) < len(self):
            projections = self._fitted()
            arrays = [array for x in projections.values() for array in x.to_arrays().values()]
            self._shared = sum(array.nbytes for array in arrays)
            self.index.close()
            self.index = self._make(self._folder, **projections, override=True)
            self._fill(self.index)
        super().finish()

    def _fill(self, index: EigenLISVIndex) -> None:
        for begin, batch in self._stored:
            index.add_documents(range(begin, begin + len(batch)), list(batch))

    def _fitted(self) -> dict[str, Any]:
        """Return the projections; a collection of fewer documents than ``dim`` is not projected."""
        found: dict[str, Any] = {}
        if self._token_dim is not None:
            tokens = (item for _, batch in self._stored for item in batch)
            found["token_projection"] = TokenProjection.fit(tokens, self._token_dim)
        if self._dim is not None and self._dim < len(self):
            with TemporaryDirectory() as folder:
                plain = {"dtype": "float16", "keep_tokens": "none", "rerank": "none"}
                with closing(self._make(Path(folder), **found, **plain)) as index:
                    self._fill(index)
                    vectors = (batch for _, batch in index.vectors())
                    found["projection"] = SVProjection.fit(vectors, self._dim)
        return found

    def search(self, queries: TokenBatch, k: int, candidates: Candidates = None) -> list[Hits]:
        self.finish()
        return super().search(queries, k, candidates)

    @property
    def nbytes(self) -> int:
        return super().nbytes - self._shared


class ProductQuantized(IndexMethod):
    """The vectors of an ``EigenLISVIndex`` in FAISS' IndexPQ, as the paper quantizes them."""

    def __init__(self, folder: Path, *, bits: int = 1, **options: Any) -> None:
        options = _as_named(options) | {"dtype": "float32", "show_progress": False}
        super().__init__(EigenLISVIndex(str(folder), **options))
        self._bits = bits
        self._quantized: FaissBackend | None = None
        self._nbytes = 0
        FaissBackend(8, 0, FaissOptions(factory=self._factory(8)))  # refuses bad bits at once

    def _factory(self, dim: int) -> str:
        # "np": without an optimisation for Hamming distances, which takes most of the time.
        return f"PQ{dim * self._bits // 8}x8np"

    def finish(self) -> None:
        vectors = np.concatenate([batch for _, batch in self.index.vectors()])
        n, dim = vectors.shape
        self._quantized = FaissBackend(dim, n, FaissOptions(factory=self._factory(dim)))
        self._quantized.train(vectors)
        self._quantized.add(np.arange(n), vectors)
        self._nbytes = self._quantized.to_bytes().nbytes

    def search(self, queries: TokenBatch, k: int, candidates: Candidates = None) -> list[Hits]:
        if candidates is not None:
            raise ValueError("faiss-pq searches all documents: it cannot rerank candidates")
        assert self._quantized is not None, "finish() comes before the first search"
        asked = self.index.encode_queries(list(queries)).vectors
        labels, scores = self._quantized.search(asked, min(k, len(self)))
        return [
            Hits(rows[rows >= 0], values[rows >= 0])
            for rows, values in zip(labels, scores, strict=True)
        ]

    @property
    def nbytes(self) -> int:
        return self._nbytes


def _as_named(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the paper's preset unless another one is named: names are the paper's."""
    return {"preset": "paper", **options}


def _eigenli(folder: Path, *, fit_queries: bool = False, **options: Any) -> IndexMethod:
    index = EigenLIIndex(str(folder), show_progress=False, **_as_named(options))
    return IndexMethod(index, asked=fit_queries)


def _single_vector(
    folder: Path,
    *,
    rerank: Any = "none",
    n_candidates: int = 100,
    fit_queries: bool = False,
    token_dim: int | None = None,
    dim: int | None = None,
    **options: Any,
) -> IndexMethod:
    if rerank == "maxsim":
        options.setdefault("keep_tokens", "int8")
    if rerank == "eigenli" and "keep_tokens" not in options:
        options.setdefault("keep_bases", True)
    of_backend = {}
    if options.get("backend", "exact") != "exact":
        own = {*signature(EigenLISVIndex).parameters, *SpectralOptions.__annotations__}
        of_backend = {name: options.pop(name) for name in list(options) if name not in own}
    # Asked for more, the index would also look at more candidates than it does in practice.
    limited = rerank != "none" or options.get("backend", "exact") != "exact"

    def make(folder: Path, **more: Any) -> EigenLISVIndex:
        given = {
            "rerank": rerank,
            "n_candidates": n_candidates,
            "backend_options": of_backend or None,
            **_as_named(options),
            **more,
        }
        return EigenLISVIndex(str(folder), show_progress=False, **given)

    common: dict[str, Any] = {"limit": n_candidates if limited else None, "asked": fit_queries}
    if token_dim is None and dim is None:
        return IndexMethod(make(folder), **common)
    return Projected(make, folder, token_dim, dim, **common)


FAMILIES = (
    Family("eigenli", _eigenli, budgeted=True),
    Family("eigenli-sv", _single_vector, budgeted=True),
    Family("faiss-pq", ProductQuantized, learns=True),
)
