"""How fast documents are compressed and searched, against what one would do otherwise.

Run ``python -m benchmarks.core``. Every line is a ratio of two times of this run,
the best of several rounds in turns, so that other load on the machine falls on both.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from pylate.scores import colbert_scores
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks import synthetic
from pylate_eigenli.evaluation.baselines import pool_kmeans, pool_ward
from pylate_eigenli.indexes.eigenli import EigenLIIndex
from pylate_eigenli.spectral.subspace import compress
from pylate_eigenli.tokens import TokenBatch, collect


def best_of(rounds: int, **tasks: Callable[[], object]) -> dict[str, float]:
    """Run the tasks in turns and return the shortest time of each in seconds."""
    times = {name: float("inf") for name in tasks}
    for task in tasks.values():
        task()  # compile, allocate, fill caches
    for _ in range(rounds):
        for name, task in tasks.items():
            begin = time.perf_counter()
            task()
            times[name] = min(times[name], time.perf_counter() - begin)
    return times


@dataclass(frozen=True)
class Compression:
    """Milliseconds per document of so many tokens, and how many times as long others take.

    ``eigh`` is one batched call over the stacked moments, and ``product_and_eigh`` that with the
    product that makes the moments of tokens. The former is compared with what compression takes
    when it, too, gets moments: as their square roots, for tokens, which are no more than d.
    """

    tokens: int
    ms_per_document: float
    eigh: float
    product_and_eigh: float
    ward: float
    kmeans: float


@dataclass(frozen=True)
class Searching:
    """Milliseconds per query, of so many at a time."""

    queries: int
    ms_per_query: float
    maxsim_ms_per_query: float


def compression(lengths: list[int], d: int, k: int, n: int, rounds: int) -> list[Compression]:
    """Time the eigensolver against one batched eigh call and against clustering."""
    rows = []
    for tokens in lengths:
        documents = synthetic.documents(n, tokens, d)
        few = collect(documents[: max(n // 8, 8)])  # clustering is slow: fewer documents
        moments = documents.mT @ documents
        roots = documents if tokens <= d else torch.linalg.qr(documents, mode="r").R.contiguous()

        def eigh(moments: Tensor = moments) -> object:
            return torch.linalg.eigh(moments)

        def product_and_eigh(documents: Tensor = documents) -> object:
            return torch.linalg.eigh(documents.mT @ documents)

        def from_moments(roots: Tensor = roots) -> object:
            return compress(roots, k)

        def ours(documents: Tensor = documents) -> object:
            return compress(documents, k)

        def ward(few: TokenBatch = few) -> object:
            return pool_ward(few, k)

        def kmeans(few: TokenBatch = few) -> object:
            return pool_kmeans(few, k)

        times = best_of(
            rounds,
            ours=ours,
            from_moments=from_moments,
            eigh=eigh,
            product_and_eigh=product_and_eigh,
            ward=ward,
            kmeans=kmeans,
        )
        own = times["ours"] / n
        rows.append(
            Compression(
                tokens,
                own * 1e3,
                eigh=times["eigh"] / times["from_moments"],
                product_and_eigh=times["product_and_eigh"] / n / own,
                ward=times["ward"] / len(few) / own,
                kmeans=times["kmeans"] / len(few) / own,
            )
        )
    return rows


def searching(
    n: int, d: int, k: int, tokens: int, query_tokens: int, rounds: int
) -> list[Searching]:
    """Time exact search against MaxSim over the uncompressed tokens."""
    documents = synthetic.documents(n, tokens, d)
    queries = synthetic.queries(64, query_tokens, d)

    def maxsim(batch: Tensor) -> list[Tensor]:
        # In pieces, so that the similarities of all tokens fit in memory.
        step = max(1, (1 << 28) // (len(batch) * query_tokens * tokens))
        return [colbert_scores(batch, piece) for piece in documents.split(step)]  # type: ignore[no-untyped-call]

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        index = EigenLIIndex(index_folder=folder, k=k, show_progress=False)
        index.add_documents(range(n), documents)
        for count in (1, 64):
            batch = queries[:count]
            times = best_of(
                rounds,
                ours=lambda batch=batch: index(batch, k=10),  # type: ignore[misc]
                maxsim=lambda batch=batch: maxsim(batch),  # type: ignore[misc]
            )
            rows.append(
                Searching(count, times["ours"] / count * 1e3, times["maxsim"] / count * 1e3)
            )
    return rows


def compression_table(rows: list[Compression], d: int, k: int) -> Table:
    """Lay out what was measured of compression."""
    table = Table(title=f"Compression to {k} directions or centroids, d={d} (times ours)")
    for column in ("tokens", "ours, ms/doc", "eigh", "product + eigh", "Ward", "k-means++"):
        table.add_column(column, justify="right")
    for row in rows:
        ratios = (
            f"{ratio:.1f}x" for ratio in (row.eigh, row.product_and_eigh, row.ward, row.kmeans)
        )
        table.add_row(str(row.tokens), f"{row.ms_per_document:.3f}", *ratios)
    return table


def searching_table(
    rows: list[Searching], n: int, d: int, k: int, tokens: int, query_tokens: int
) -> Table:
    """Lay out what was measured of searching."""
    table = Table(title=f"Exact search, {n:,} documents, d={d}, k={k}, {query_tokens} query tokens")
    for column in ("queries", "ours, ms/query", f"MaxSim over {tokens} tokens", "speed-up"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row.queries),
            f"{row.ms_per_query:.2f}",
            f"{row.maxsim_ms_per_query:.1f} ms/query",
            f"{row.maxsim_ms_per_query / row.ms_per_query:.1f}x",
        )
    return table


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--k", type=int, default=32)
    parser.add_argument("--tokens", type=int, nargs="+", default=[60, 180, 512])
    parser.add_argument("--documents", type=int, default=512, help="documents to compress")
    parser.add_argument(
        "--collection", type=int, default=10_000, help="documents to search; 0: skip"
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    console = Console()
    d, k, rounds = options.dim, options.k, options.rounds
    compressed = compression(options.tokens, d, k, options.documents, rounds)
    console.print(compression_table(compressed, d, k))
    if options.collection:
        shape = (options.collection, d, k, 180, 32)
        console.print(searching_table(searching(*shape, rounds), *shape))


if __name__ == "__main__":
    main()
