"""Methods that keep some vectors per document and score all of them: MaxSim, pooling, MUVERA.

A single vector is a document of one token: MaxSim is then the inner product.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...scores.maxsim import maxsim_scores
from ...storage.disk import make_folder, replace_file
from ...tokens import TokenBatch
from ...vectors.ranking import top_k
from ..baselines import Muvera, pool_kmeans, pool_ward
from .base import Candidates, Family, Hits

_MEMORY = 1 << 30
_NO_HITS = Hits(np.zeros(0, np.int64), np.zeros(0, np.float32))

Encode = Callable[[TokenBatch], TokenBatch]


class StoredTokens:
    """Vectors of documents on disk: a float16 ``.npz`` file per batch, replaced atomically.

    Parameters
    ----------
    folder
        Created if it does not exist.
    memory_limit
        Bytes of files that are kept in memory once they were read.

    Examples
    --------
    >>> import tempfile
    >>> from pylate_eigenli.tokens import collect
    >>> folder = tempfile.mkdtemp()
    >>> StoredTokens(folder).append(collect([[[1.0, 0.0]], [[0.0, 1.0]]]))
    >>> [(begin, batch.lengths.tolist()) for begin, batch in StoredTokens(folder)]
    [(0, [1, 1])]
    """

    def __init__(self, folder: str | Path, memory_limit: int = _MEMORY) -> None:
        self.folder = Path(folder)
        make_folder(self.folder)
        self._free = memory_limit
        self._loaded: dict[Path, TokenBatch] = {}

    @property
    def _files(self) -> list[Path]:
        """The files in order. Their names say which documents they hold: ``<begin>-<end>``."""
        return sorted(self.folder.glob("*.npz"))

    def __len__(self) -> int:
        files = self._files
        return int(files[-1].stem.partition("-")[2]) if files else 0

    def append(self, batch: TokenBatch) -> None:
        """Write the next documents."""
        begin, payload = len(self), io.BytesIO()
        tokens = batch.tokens.cpu().half().numpy()
        np.savez(payload, tokens=tokens, offsets=batch.offsets)
        name = f"{begin:010d}-{begin + len(batch):010d}.npz"
        replace_file(self.folder / name, payload.getvalue())

    def __iter__(self) -> Iterator[tuple[int, TokenBatch]]:
        """Yield batches, each with the number of its first document."""
        for path in self._files:
            batch = self._loaded.get(path)
            if batch is None:
                with np.load(path) as file:
                    batch = TokenBatch(torch.from_numpy(file["tokens"]), file["offsets"])
                if batch.tokens.nbytes <= self._free:
                    self._free -= batch.tokens.nbytes
                    self._loaded[path] = batch
            yield int(path.stem.partition("-")[0]), batch

    @property
    def nbytes(self) -> int:
        """Size of the files."""
        return sum(path.stat().st_size for path in self._files)

    def clear(self) -> None:
        """Release the memory."""
        self._loaded.clear()


class Scanned:
    """Documents and queries are some vectors each, and every document is scored by MaxSim.

    Parameters
    ----------
    folder
        Where the vectors are stored, as float16.
    documents, queries
        Functions that make the vectors of token vectors. By default tokens are used as they are.

    Examples
    --------
    >>> import tempfile
    >>> from pylate_eigenli.tokens import collect
    >>> ward = Scanned(tempfile.mkdtemp(), partial(pool_ward, k=1))
    >>> ward.add(collect([[[1.0, 0.0], [0.28, 0.96]], [[0.0, 1.0]]]))
    >>> [hits] = ward.search(collect([[[1.0, 0.0]]], names="query"), k=2)
    >>> hits.rows, hits.scores.round(2)
    (array([0, 1]), array([0.8, 0. ], dtype=float32))
    """

    def __init__(
        self, folder: str | Path, documents: Encode | None = None, queries: Encode | None = None
    ) -> None:
        self._stored = StoredTokens(folder)
        self._documents = documents
        self._queries = queries

    def __len__(self) -> int:
        return len(self._stored)

    def add(self, documents: TokenBatch) -> None:
        self._stored.append(self._documents(documents) if self._documents else documents)

    def finish(self) -> None:
        """Do nothing: each document stands on its own."""

    def fit_queries(self, queries: TokenBatch) -> None:
        """Do nothing: scores do not depend on other queries."""

    def search(
        self, queries: TokenBatch, k: int, candidates: Candidates | None = None
    ) -> list[Hits]:
        """Return the best k documents per query; of equal scores the earlier document wins."""
        asked = self._queries(queries) if self._queries else queries
        chosen = None if candidates is None else [np.unique(rows) for rows in candidates]
        hits = [_NO_HITS] * len(queries)
        for begin, part in self._stored:
            scores = maxsim_scores(asked, part)
            for i, values in enumerate(scores):
                local = np.arange(len(part))
                if chosen is not None:
                    bounds = np.searchsorted(chosen[i], [begin, begin + len(part)])
                    local = chosen[i][slice(*bounds)] - begin
                hits[i] = _merge(hits[i], local + begin, values[local], k)
        return hits

    @property
    def nbytes(self) -> int:
        return self._stored.nbytes

    def close(self) -> None:
        self._stored.clear()


def _merge(before: Hits, rows: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> Hits:
    rows, scores = np.concatenate([before.rows, rows]), np.concatenate([before.scores, scores])
    chosen = top_k(scores, k)
    return Hits(rows[chosen], scores[chosen])


def _single(encode: Callable[[TokenBatch], NDArray[np.float32]], batch: TokenBatch) -> TokenBatch:
    """Return each item as its one vector."""
    return TokenBatch(torch.from_numpy(encode(batch)), np.arange(len(batch) + 1))


def _muvera(folder: Path, **options: Any) -> Scanned:
    encoder = Muvera(**options)
    return Scanned(
        folder,
        partial(_single, encoder.encode_documents),
        partial(_single, encoder.encode_queries),
    )


_MUVERA_OPTIONS = dict.fromkeys(("repetitions", "hyperplanes", "projection_dim", "seed"), int)

FAMILIES = (
    Family("full", Scanned, is_maxsim=True),
    Family("ward", lambda folder, k: Scanned(folder, partial(pool_ward, k=k)), True, {}, True),
    Family(
        "kmeans",
        lambda folder, k, seed=0: Scanned(folder, partial(pool_kmeans, k=k, seed=seed)),
        budgeted=True,
        options={"seed": int},
        is_maxsim=True,
    ),
    Family("muvera", _muvera, options=_MUVERA_OPTIONS),
    Family("muvera-centered", partial(_muvera, centered=True), options=_MUVERA_OPTIONS),
)
