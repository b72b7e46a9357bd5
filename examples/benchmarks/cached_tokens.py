"""Token embeddings made elsewhere: ``NAME_COLLECTION_docs.npz`` and ``NAME_COLLECTION_queries.npz``.

Each has the arrays ``tokens`` (float16), ``offsets`` and ``ids``. ``NAME_COLLECTION_sample.npz``, if there
is one, has queries to learn from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pylate_eigenli.evaluation.beir import Collection
from pylate_eigenli.evaluation.embeddings import TokenFile


@dataclass(frozen=True)
class CachedTokens:
    """The files of a collection, and the ids of its texts."""

    files: tuple[Path, Path]
    learnt: Path
    ids: tuple[tuple[str, ...], tuple[str, ...]]

    @classmethod
    def of(cls, cache: Path, name: str, collection: Collection) -> CachedTokens | None:
        """Return the files for a model of this name, or None if the cache lacks one."""
        documents, queries = (
            cache / f"{name}_{collection.name}_{side}.npz" for side in ("docs", "queries")
        )
        if not (documents.exists() and queries.exists()):
            return None
        learnt = cache / f"{name}_{collection.name}_sample.npz"
        return cls(
            (documents, queries), learnt, (tuple(collection.corpus), tuple(collection.queries))
        )

    @property
    def key(self) -> list[str]:
        """What identifies the embeddings."""
        paths = [*self.files, *([self.learnt] if self.learnt.exists() else [])]
        return [f"{path}, {path.stat().st_mtime_ns}" for path in paths]

    def documents(self) -> TokenFile:
        """Return the embeddings of documents in the order of the collection."""
        return _tokens(self.files[0], self.ids[0])

    def queries(self) -> TokenFile:
        """Return the embeddings of queries in the order of the collection."""
        return _tokens(self.files[1], self.ids[1])

    @property
    def sample(self) -> Callable[[], TokenFile] | None:
        """Returns the queries to learn from; None if the cache has none."""
        return partial(_tokens, self.learnt) if self.learnt.exists() else None


def _tokens(path: Path, ids: Iterable[str] | None = None) -> TokenFile:
    """Return the embeddings of some texts, in their order, or of all."""
    with np.load(path) as file:
        tokens, offsets, known = file["tokens"], file["offsets"], file["ids"]
    rows = {str(i): row for row, i in enumerate(known.tolist())}
    ids = rows if ids is None else ids
    missing = [i for i in ids if i not in rows]
    if missing:
        raise ValueError(f"{path} has no embeddings of {missing[0]!r}: remove it, or make it again")
    wanted = [rows[i] for i in ids]
    return TokenFile.of([tokens[offsets[row] : offsets[row + 1]] for row in wanted])
