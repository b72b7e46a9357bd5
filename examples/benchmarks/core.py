"""How fast documents are compressed and searched, compared with the alternatives.

    cd examples && python -m benchmarks.core

Every number is a ratio of two times of the same run. Each time is the best of several rounds, in
turns, so that other load on the machine affects both.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from pylate.scores import colbert_scores
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits
from torch import Tensor

from benchmarks import synthetic
from pylate_eigenli.evaluation.baselines import pool_kmeans, pool_ward
from pylate_eigenli.indexes.eigenli import EigenLIIndex
from pylate_eigenli.spectral.kernels.threads import for_ranges
from pylate_eigenli.spectral.subspace import compress
from pylate_eigenli.tokens import TokenBatch, collect
from pylate_eigenli.vectors.packing import packed_dim
from pylate_eigenli.vectors.quantization import Bits, Codes


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


def top_eigenvectors(moments: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """Return the k leading eigenvectors of each matrix by LAPACK's driver. Shape: (n, d, k)."""
    n, d, _ = moments.shape
    result = np.empty((n, d, k), np.float32)

    def task(part: slice) -> None:
        for i in range(part.start, part.stop):
            _, result[i] = scipy.linalg.eigh(
                moments[i], subset_by_index=(d - k, d - 1), driver="evr", check_finite=False
            )

    # One thread of BLAS per matrix: several would get in each other's way.
    with threadpool_limits(1, user_api="blas"):
        for_ranges(task, n, 8)
    return result


@dataclass(frozen=True)
class Compression:
    """Milliseconds per document with this many tokens, and the times of others as multiples.

    ``eigh`` is one batched call over the stacked moments; ``product_and_eigh`` adds the product
    that makes the moments from tokens. ``lapack_top_k`` is LAPACK's own driver for the largest k
    eigenvalues (``evr``), called for every document, in as many threads as the others use. ``eigh``
    and ``lapack_top_k`` start from moments, so they are compared with compression of square roots
    of moments (at most d rows per document).
    """

    tokens: int
    ms_per_document: float
    eigh: float
    lapack_top_k: float
    product_and_eigh: float
    ward: float
    kmeans: float


@dataclass(frozen=True)
class Searching:
    """Milliseconds per query, with this many queries at a time."""

    queries: int
    ms_per_query: float
    maxsim_ms_per_query: float


def compression(lengths: list[int], d: int, k: int, n: int, rounds: int) -> list[Compression]:
    """Time the eigensolver against LAPACK and against clustering."""
    rows = []
    for tokens in lengths:
        documents = synthetic.documents(n, tokens, d)
        few = collect(documents[: max(n // 8, 8)])  # fewer documents, because clustering is slow
        moments = documents.mT @ documents
        roots = documents if tokens <= d else torch.linalg.qr(documents, mode="r").R.contiguous()

        def eigh(moments: Tensor = moments) -> object:
            return torch.linalg.eigh(moments)

        def lapack_top_k(moments: Tensor = moments) -> object:
            return top_eigenvectors(moments.numpy(), k)

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
            lapack_top_k=lapack_top_k,
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
                lapack_top_k=times["lapack_top_k"] / times["from_moments"],
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
        index = EigenLIIndex(index_folder=folder, k=k, preset="paper", show_progress=False)
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


@dataclass(frozen=True)
class Scanning:
    """Milliseconds to scan codes of this many bits for one query, and for each of 64 at once.

    ``bandwidth`` is the share of the speed at which two threads read memory that the scan for one
    query has. ``exact`` and ``exact_batch`` are the times of exact scores by floats, as multiples.
    """

    bits: int
    ms: float
    ms_in_batch: float
    bandwidth: float
    exact: float
    exact_batch: float


def scanning(n: int, d: int, rounds: int) -> list[Scanning]:
    """Time the scan of codes of single vectors."""
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(64, packed_dim(d), generator=generator)
    rows = []
    for bits in get_args(Bits):
        few = Codes.encode(torch.randn(1000, packed_dim(d), generator=generator), bits)
        times = -(-n // 1000)
        codes = replace(
            few, values=np.tile(few.values, (times, 1)), scales=np.tile(few.scales, times)
        )
        words = codes.values.reshape(-1).view(np.uint64)  # a thousand codes are whole words

        def read(words: NDArray[np.uint64] = words) -> None:
            for_ranges(lambda part: words[part].max(), len(words), 1 << 20)

        tasks: dict[str, Callable[[], object]] = {
            "read": read,
            "one": lambda codes=codes: codes.approximate_scores(queries[:1]),  # type: ignore[misc]
            "exact": lambda codes=codes: codes.scores(queries[:1]),  # type: ignore[misc]
            "many": lambda codes=codes: codes.approximate_scores(queries),  # type: ignore[misc]
            "exact_many": lambda few=few: queries @ few.decode().mT,  # type: ignore[misc]
        }
        best = best_of(rounds, **tasks)
        rows.append(
            Scanning(
                bits,
                best["one"] * 1e3,
                best["many"] / len(queries) * 1e3,
                bandwidth=best["read"] / best["one"],
                exact=best["exact"] / best["one"],
                exact_batch=best["exact_many"] * times / best["many"],
            )
        )
    return rows


def scanning_table(rows: list[Scanning], n: int, d: int) -> Table:
    """Return the table of times of scans."""
    table = Table(title=f"Scan of {n:,} codes of {packed_dim(d):,} dimensions")
    for column in ("bits", "ms", "of memory's speed", "by floats", "ms in batch", "by floats"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row.bits),
            f"{row.ms:.2f}",
            f"{row.bandwidth:.0%}",
            f"{row.exact:.1f}x",
            f"{row.ms_in_batch:.2f}",
            f"{row.exact_batch:.1f}x",
        )
    return table


def compression_table(rows: list[Compression], d: int, k: int) -> Table:
    """Return the table of compression times."""
    names = {
        "eigh": "eigh",
        "LAPACK top-k": "lapack_top_k",
        "product + eigh": "product_and_eigh",
        "Ward": "ward",
        "k-means++": "kmeans",
    }
    table = Table(title=f"Compression to {k} directions or centroids, d={d} (times ours)")
    for column in ("tokens", "ours, ms/doc", *names):
        table.add_column(column, justify="right")
    for row in rows:
        ratios = (f"{getattr(row, attribute):.1f}x" for attribute in names.values())
        table.add_row(str(row.tokens), f"{row.ms_per_document:.3f}", *ratios)
    return table


def searching_table(
    rows: list[Searching], n: int, d: int, k: int, tokens: int, query_tokens: int
) -> Table:
    """Return the table of search times."""
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
        scanned = scanning(options.collection, d, rounds)
        console.print(scanning_table(scanned, options.collection, d))


if __name__ == "__main__":
    main()
