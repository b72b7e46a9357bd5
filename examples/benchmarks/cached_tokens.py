"""Token embeddings made elsewhere: ``NAME_COLLECTION_docs.npz`` and ``NAME_COLLECTION_queries.npz``.

Each has the arrays ``tokens`` (float16), ``offsets`` and ``ids``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pylate_eigenli.evaluation.beir import Collection
from pylate_eigenli.evaluation.embeddings import TokenFile


@dataclass(frozen=True)
class CachedTokens:
    """The files of a collection, and the ids of its texts."""

    files: tuple[Path, Path]
    ids: tuple[tuple[str, ...], tuple[str, ...]]

    @classmethod
    def of(cls, cache: Path, name: str, collection: Collection) -> CachedTokens | None:
        """Return the files for a model of this name, or None if the cache lacks one."""
        documents, queries = (
            cache / f"{name}_{collection.name}_{side}.npz" for side in ("docs", "queries")
        )
        if not (documents.exists() and queries.exists()):
            return None
        return cls((documents, queries), (tuple(collection.corpus), tuple(collection.queries)))

    @property
    def key(self) -> list[str]:
        """What identifies the embeddings."""
        return [f"{path}, {path.stat().st_mtime_ns}" for path in self.files]

    def documents(self) -> TokenFile:
        """Return the embeddings of documents in the order of the collection."""
        return _tokens(self.files[0], self.ids[0])

    def queries(self) -> TokenFile:
        """Return the embeddings of queries in the order of the collection."""
        return _tokens(self.files[1], self.ids[1])


def _tokens(path: Path, ids: Iterable[str]) -> TokenFile:
    with np.load(path) as file:
        tokens, offsets, known = file["tokens"], file["offsets"], file["ids"]
    rows = {str(i): row for row, i in enumerate(known.tolist())}
    missing = [i for i in ids if i not in rows]
    if missing:
        raise ValueError(f"{path} has no embeddings of {missing[0]!r}: remove it, or make it again")
    wanted = [rows[i] for i in ids]
    return TokenFile.of([tokens[offsets[row] : offsets[row + 1]] for row in wanted])
