"""Approximate search among very many documents, against an exact scan of the same codes.

    cd examples && python -m benchmarks.ann --cache TOKENS --model NAME --collections scifact nfcorpus \\
        --documents 10000 100000 1000000 --dtype binary int8 --backends sketch

TOKENS holds token embeddings of the collections (see :mod:`benchmarks.cached_tokens`). Real documents
come first. After them come mixtures, which keep the spectra of real documents: half the tokens of a
document and half of one that is near it. Every size gets a process of its own, so that peak memory is
its own. Milliseconds are the medians over queries, one at a time, elapsed and of a core;
recall is the share of the best 100 of the scan that are found. A growth exponent of 1 means
proportional to the number of documents, 0 means constant.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.memory import peak_megabytes
from pylate_eigenli.indexes.ann import accelerator
from pylate_eigenli.indexes.documents import SearchRequest
from pylate_eigenli.indexes.single_vector import EigenLISVIndex
from pylate_eigenli.vectors.ranking import top_k

_DEPTH = 100
_NEAR = 50  # so many of the nearest documents may give the other half of a mixture
_BATCH = 64


@dataclass(frozen=True)
class Task:
    """What to measure."""

    cache: Path
    model: str
    collections: tuple[str, ...]
    documents: int
    dtype: str
    backend: str
    queries: int
    folder: str | None


@dataclass(frozen=True)
class Row:
    """The measurements of a task; ``exact_*`` are those of a scan of the same index.

    Parameters
    ----------
    build_seconds, structure_seconds
        To build the index, without making the mixtures, and what the ANN structure takes of it.
    bytes_per_document
        On disk, the structure included.
    recall
        Of the best 100.
    """

    backend: str
    dtype: str
    documents: int
    real_documents: int
    build_seconds: float
    structure_seconds: float
    build_megabytes: float
    bytes_per_document: float
    recall: float
    ms: float
    exact_ms: float
    core_ms: float
    exact_core_ms: float
    batch_ms: float
    exact_batch_ms: float


class Mixtures:
    """Real documents, then mixtures of two; counts the seconds that making them takes."""

    def __init__(self, real: Sequence[NDArray[np.float16]], size: int) -> None:
        self._real = real
        self._size = size
        self.seconds = 0.0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        random = np.random.default_rng(0)
        order = random.permutation(len(self._real))
        for i in range(self._size):
            begin = time.perf_counter()
            first = int(order[i % len(order)])
            document = self._real[first]
            if i >= len(order):
                second = self._real[self._near(first)[random.integers(_NEAR)]]
                document = np.concatenate([_half(document, random), _half(second, random)])
            document = document.astype(np.float32)
            self.seconds += time.perf_counter() - begin
            yield document

    def _near(self, document: int) -> NDArray[np.int64]:
        means = self._means
        return top_k(means @ means[document], _NEAR + 1)[1:]

    @cached_property
    def _means(self) -> NDArray[np.float32]:
        means = np.stack([tokens.mean(axis=0, dtype=np.float32) for tokens in self._real])
        means -= means.mean(axis=0)
        return means / np.linalg.norm(means, axis=1, keepdims=True)


def _half(tokens: NDArray[np.float16], random: np.random.Generator) -> NDArray[np.float16]:
    return tokens[random.permutation(len(tokens))[: -(-len(tokens) // 2)]]


def _tokens(task: Task, side: str, per_collection: int | None = None) -> list[NDArray[np.float16]]:
    items = []
    for collection in task.collections:
        with np.load(task.cache / f"{task.model}_{collection}_{side}.npz") as file:
            tokens, offsets = file["tokens"], file["offsets"].tolist()
        items += [tokens[begin:end] for begin, end in pairwise(offsets)][:per_collection]
    return items


def measure(task: Task) -> Row:
    """Build an index, and search it with its structure and without."""
    queries = [x.astype(np.float32) for x in _tokens(task, "queries", task.queries)]
    queries = [queries[i] for i in np.random.default_rng(1).permutation(len(queries))][
        : task.queries
    ]
    documents = Mixtures(_tokens(task, "docs"), task.documents)
    with tempfile.TemporaryDirectory(dir=task.folder) as folder:
        options: dict[str, Any] = {"dtype": task.dtype, "show_progress": False}
        warm = EigenLISVIndex(folder, "warm-up", **options)
        warm.add_documents(range(200), [x for x, _ in zip(documents, range(200), strict=False)])
        warm(queries[:5])
        index = EigenLISVIndex(folder, backend=task.backend, **options)
        documents.seconds = 0.0
        # Build the structure once, at the end.
        accelerator._PENDING_DOCUMENTS = task.documents + 1
        built = time.perf_counter()
        index.add_documents(range(task.documents), documents)
        build_seconds = time.perf_counter() - built - documents.seconds
        built = time.perf_counter()
        index.build()
        structure_seconds = time.perf_counter() - built
        build_megabytes = peak_megabytes()
        times = {exact: _times(index, queries, exact) for exact in (False, True)}
        shares = [
            np.isin(truth, found).mean()
            for found, truth in zip(times[False].found, times[True].found, strict=True)
        ]
        return Row(
            task.backend,
            task.dtype,
            task.documents,
            min(task.documents, len(documents._real)),
            build_seconds,
            structure_seconds,
            build_megabytes,
            index.nbytes / task.documents,
            float(np.mean(shares)),
            *(
                getattr(times[exact], name)
                for name in ("ms", "core_ms", "batch_ms")
                for exact in (False, True)
            ),
        )


@dataclass
class _Times:
    """What searches found, and how long they took."""

    found: list[list[Any]]
    ms: float
    core_ms: float
    batch_ms: float


def _times(index: EigenLISVIndex, queries: list[NDArray[np.float32]], exact: bool) -> _Times:
    def search(some: list[NDArray[np.float32]]) -> list[list[Any]]:
        state = index._snapshot
        encoded = index._queries(state, some, None, None)
        request = SearchRequest(encoded, _DEPTH, n_candidates=_DEPTH, exact=exact)
        return [hits.ids for hits in index._documents.search(state, request, None)]

    search(queries[:2])
    found, elapsed, of_a_core = [], [], []
    for query in queries:
        begin, begin_core = time.perf_counter(), time.process_time()
        found += search([query])
        elapsed.append(time.perf_counter() - begin)
        of_a_core.append(time.process_time() - begin_core)
    batch = (queries * _BATCH)[:_BATCH]
    begin = time.perf_counter()
    search(batch)
    batch_ms = (time.perf_counter() - begin) / _BATCH * 1e3
    return _Times(
        found, float(np.median(elapsed)) * 1e3, float(np.median(of_a_core)) * 1e3, batch_ms
    )


def exponent(rows: Sequence[Row], name: str) -> float:
    """Return the best-fitting exponent of the number of documents for a measure.

    Examples
    --------
    >>> small = Row("sketch", "int8", 100, 100, 1, 0, 500, 1, 1, 1.0, 1, 1, 1, 1, 1)
    >>> large = Row("sketch", "int8", 10_000, 100, 1, 0, 500, 1, 1, 10.0, 1, 1, 1, 1, 1)
    >>> round(exponent([small, large], "ms"), 2)
    0.5
    """
    sizes = np.log([row.documents for row in rows])
    values = np.log([getattr(row, name) for row in rows])
    return float(np.polyfit(sizes, values, 1)[0])


def table(rows: Sequence[Row]) -> Table:
    """Return the table, with exponents for each backend and precision if there are several sizes."""
    result = Table(title=f"The best {_DEPTH}: approximate search and a scan of the same codes")
    headings = (
        "backend",
        "precision",
        "documents",
        "recall",
        "ms / scan",
        "of a core / scan",
        "batch / scan",
        "scan / ours",
        "build, s",
        "of it structure",
        "peak MB",
        "bytes / doc",
    )
    for heading in headings:
        result.add_column(heading, justify="left" if heading in headings[:2] else "right")
    for kind in dict.fromkeys((row.backend, row.dtype) for row in rows):
        members = [row for row in rows if (row.backend, row.dtype) == kind]
        for row in members:
            result.add_row(
                *kind,
                f"{row.documents:,}",
                f"{row.recall:.3f}",
                f"{row.ms:.2f} / {row.exact_ms:.2f}",
                f"{row.core_ms:.2f} / {row.exact_core_ms:.2f}",
                f"{row.batch_ms:.2f} / {row.exact_batch_ms:.2f}",
                f"{row.exact_core_ms / row.core_ms:.1f}x",
                f"{row.build_seconds + row.structure_seconds:,.0f}",
                f"{row.structure_seconds:,.0f}",
                f"{row.build_megabytes:,.0f}",
                f"{row.bytes_per_document:,.0f}",
            )
        if len(members) > 1:
            powers = (
                " / ".join(f"{exponent(members, n):.2f}" for n in names)
                for names in (
                    ("ms", "exact_ms"),
                    ("core_ms", "exact_core_ms"),
                    ("batch_ms", "exact_batch_ms"),
                )
            )
            memory = f"{exponent(members, 'build_megabytes'):.2f}"
            result.add_row(*kind, "exponent", "", *powers, "", "", "", memory, "", end_section=True)
    return result


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cache", type=Path, required=True, help="folder of token embeddings")
    parser.add_argument("--model", required=True, help="the name of a model in the cache")
    parser.add_argument("--collections", nargs="+", required=True)
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--dtype", nargs="+", default=["binary", "int8"])
    parser.add_argument("--backends", nargs="+", default=["sketch"])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--folder", help="where to build; by default the system's temporary folder")
    parser.add_argument("--out", type=Path, help="write the rows here as JSON too")
    given = parser.parse_args(arguments)
    rows = []
    for dtype in given.dtype:
        for backend in given.backends:
            for n in sorted(given.documents):
                names = tuple(given.collections)
                task = Task(
                    given.cache, given.model, names, n, dtype, backend, given.queries, given.folder
                )
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                    rows.append(process.submit(measure, task).result())
                print(rows[-1], flush=True)
                if given.out is not None:  # after each, for it may be hours until the last
                    given.out.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    Console(width=160).print(table(rows))


if __name__ == "__main__":
    main()
