"""How build time, size, memory and search time grow with the collection, on one machine.

    cd examples && python -m benchmarks.scale --documents 10000 100000 --dtype binary int8

Synthetic documents with the spectra of real ones are generated in blocks and streamed into an
``EigenLISVIndex``. Every size gets a process of its own, so that peak memory is its own. An exponent
of 1 means proportional to the number of documents, 0 means constant.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.memory import peak_megabytes
from pylate_eigenli.storage.disk import RESERVE_NAME

_BLOCK = 1024
_MEASURES = ("build_seconds", "bytes", "build_megabytes", "search_megabytes", "ms_per_query")


@dataclass(frozen=True)
class Task:
    """What to measure: the number of documents, their tokens, and the precision of the index."""

    documents: int
    dtype: str
    tokens: int = 180
    d: int = 128
    k: int = 32
    queries: int = 20
    folder: str | None = None


@dataclass(frozen=True)
class Row:
    """The measurements of a task.

    Parameters
    ----------
    documents, dtype
        Of the task.
    build_seconds
        Time to compress and store all documents, without the time to generate them.
    bytes
        Size of the index on disk, without the reserve that removing documents needs on a full disk.
    build_megabytes, search_megabytes
        Peak memory after building and after searching; the latter includes mapped files of the
        index, which the system can release at any time.
    ms_per_query
        Median over queries, one at a time.
    """

    documents: int
    dtype: str
    build_seconds: float
    bytes: int
    build_megabytes: float
    search_megabytes: float
    ms_per_query: float


class _Stream:
    """Synthetic documents, generated on demand; counts the seconds that this takes."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.seconds = 0.0

    def __iter__(self) -> Iterator[Any]:
        from benchmarks.synthetic import documents

        task = self._task
        for seed, begin in enumerate(range(0, task.documents, _BLOCK)):
            started = time.perf_counter()
            n = min(_BLOCK, task.documents - begin)
            block = documents(n, task.tokens, task.d, seed=seed)
            self.seconds += time.perf_counter() - started
            yield from block


def measure(task: Task) -> Row:
    """Build an index and search it."""
    from benchmarks.synthetic import queries
    from pylate_eigenli.indexes.single_vector import EigenLISVIndex

    asked = queries(task.queries, tokens=32, d=task.d, seed=10**6)
    with tempfile.TemporaryDirectory(dir=task.folder) as folder:
        options: dict[str, Any] = {"k": task.k, "dtype": task.dtype, "show_progress": False}
        # Kernels are compiled once per machine: that is nobody's build time.
        warm = EigenLISVIndex(folder, "warm-up", **options)
        warm.add_documents(range(8), _Stream(Task(8, task.dtype, task.tokens, task.d)))
        warm(asked[:1])
        index = EigenLISVIndex(folder, **options)
        stream = _Stream(task)
        started = time.perf_counter()
        index.add_documents(range(task.documents), stream)
        build_seconds = time.perf_counter() - started - stream.seconds
        build_megabytes = peak_megabytes()
        files = Path(folder, index.index_name).iterdir()
        size = sum(file.stat().st_size for file in files if file.name != RESERVE_NAME)
        index(asked[:1])
        times = []
        for query in asked:
            started = time.perf_counter()
            index(query, k=10)
            times.append(time.perf_counter() - started)
    return Row(
        task.documents,
        task.dtype,
        build_seconds,
        size,
        build_megabytes,
        peak_megabytes(),
        float(np.median(times)) * 1e3,
    )


def exponents(rows: Sequence[Row]) -> dict[str, float]:
    """Return, for every measure, the best-fitting exponent of the number of documents.

    Examples
    --------
    >>> rows = [Row(n, "int8", n / 100, 8 * n, 500, 600, n**0.5) for n in (10, 100, 1000)]
    >>> {name: round(power, 2) + 0 for name, power in exponents(rows).items()}
    {'build_seconds': 1.0, 'bytes': 1.0, 'build_megabytes': 0.0, 'search_megabytes': 0.0, 'ms_per_query': 0.5}
    """
    sizes = np.log([row.documents for row in rows])
    return {
        name: float(np.polyfit(sizes, np.log([getattr(row, name) for row in rows]), 1)[0])
        for name in _MEASURES
    }


def table(rows: Sequence[Row]) -> Table:
    """Return the table, with the exponents of each precision if there are several sizes."""
    result = Table(
        title="EigenLISVIndex, exact backend",
        caption="Exponents are those of the time to build, of all bytes, of memory, and per query.",
    )
    for heading in (
        "precision",
        "documents",
        "build, docs/s",
        "bytes / doc",
        "peak MB, build",
        "peak MB, search",
        "ms / query",
    ):
        result.add_column(heading, justify="left" if heading == "precision" else "right")
    for dtype in dict.fromkeys(row.dtype for row in rows):
        members = [row for row in rows if row.dtype == dtype]
        for row in members:
            result.add_row(
                dtype,
                f"{row.documents:,}",
                f"{row.documents / row.build_seconds:,.0f}",
                f"{row.bytes / row.documents:,.0f}",
                f"{row.build_megabytes:,.0f}",
                f"{row.search_megabytes:,.0f}",
                f"{row.ms_per_query:,.1f}",
            )
        if len(members) > 1:
            powers = [f"{power:.2f}" for power in exponents(members).values()]
            result.add_row("", "exponent", *powers, end_section=True)
    return result


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--dtype", nargs="+", default=["binary", "int8"])
    parser.add_argument("--tokens", type=int, default=180)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--k", type=int, default=32)
    parser.add_argument("--folder", help="where to build; by default the system's temporary folder")
    parser.add_argument("--out", type=Path, help="write the rows here as JSON too")
    options = parser.parse_args(arguments)
    rows = []
    for dtype in options.dtype:
        for n in sorted(options.documents):
            task = Task(n, dtype, options.tokens, options.dim, options.k, folder=options.folder)
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                rows.append(process.submit(measure, task).result())
            print(rows[-1], flush=True)
            if options.out is not None:  # after each, for it may be hours until the last
                options.out.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    Console().print(table(rows))


if __name__ == "__main__":
    main()
