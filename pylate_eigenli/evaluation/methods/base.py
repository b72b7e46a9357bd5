"""What every retrieval method of the evaluation can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ...indexes.results import Hits
from ...tokens import TokenBatch

__all__ = ["Candidates", "Family", "Hits", "Method", "Spec", "hits_of"]

Candidates: TypeAlias = Sequence[NDArray[np.int64]] | None
"""For each query the rows of the documents to choose from; None for all documents."""


@runtime_checkable
class Method(Protocol):
    """Documents in a folder, and a search over them. Documents are numbered in the order added.

    A method whose folder already holds documents continues after them: ``len`` says how many
    there are. ``finish``, ``fit_queries`` and ``close`` do nothing unless a method needs them.
    """

    def __len__(self) -> int:
        """Return the number of documents."""

    def add(self, documents: TokenBatch) -> None:
        """Add the next documents. All of them are in the folder when the call returns."""

    def finish(self) -> None:
        """Build what needs all documents. Called after the last ``add``, before any search."""
        return

    def fit_queries(self, queries: TokenBatch) -> None:
        """Learn from a sample of queries, without judgements. Called before any search."""
        return

    def search(self, queries: TokenBatch, k: int, candidates: Candidates = None) -> list[Hits]:
        """Return the rows and scores of the best k documents per query, best first."""

    @property
    def nbytes(self) -> int:
        """Bytes on disk that a search needs."""

    def close(self) -> None:
        """Release files and memory."""
        return


@dataclass(frozen=True)
class Family:
    """A kind of method; its name is the first part of their names: ``ward`` in ``ward-32``.

    ``open`` is called with the folder, k and the options. The names of ``budgeted`` families end in
    ``-<k>``, the number of vectors to keep per document. A family ``learns`` if building needs the
    whole collection, so that a few documents cannot warm it up; ``is_maxsim`` tells that scores are
    MaxSim over the vectors kept.
    """

    name: str
    open: Callable[..., Method]
    budgeted: bool = False
    is_maxsim: bool = False
    learns: bool = False

    @property
    def pattern(self) -> str:
        """How names of this family look, for error messages."""
        return f"{self.name}-<k>" if self.budgeted else self.name


@dataclass(frozen=True)
class Spec:
    """A method chosen by its name; see :func:`pylate_eigenli.evaluation.methods.parse`."""

    name: str
    family: Family
    k: int | None
    options: Mapping[str, Any] = field(hash=False)

    def open(self, folder: str | Path) -> Method:
        """Open the method in a folder, with the documents that are already there."""
        budget = {} if self.k is None else {"k": self.k}
        try:
            return self.family.open(Path(folder), **budget, **self.options)
        except (TypeError, ValueError) as error:
            # Without the name of the function that refuses an option.
            raise ValueError(f"{self.name}: {str(error).rpartition('() ')[2]}") from error

    def check(self) -> None:
        """Raise an error now if an option has a bad value or a library is missing."""
        with TemporaryDirectory() as folder:
            self.open(folder).close()


def hits_of(results: Sequence[Mapping[str, Any]]) -> Hits:
    """Return what a PyLate index found for one query, where ids are the numbers of rows."""
    return Hits(
        np.array([int(hit["id"]) for hit in results], np.int64),
        np.array([hit["score"] for hit in results], np.float32),
    )
