"""How fast pages of vision models, about 1,250 vectors of 320 dimensions, are compressed.

    cd examples && python -m benchmarks.pages

All methods get the same pages and threads, in turns, so that ratios hold on a busy machine.
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from benchmarks import synthetic
from benchmarks.core import best_of
from pylate_eigenli.evaluation.baselines import pool_kmeans, pool_ward
from pylate_eigenli.spectral.subspace import compress
from pylate_eigenli.tokens import collect


def compression(n: int, tokens: int, d: int, ks: list[int], rounds: int) -> Table:
    """Time EigenLI against pooling to as many vectors."""
    pages = synthetic.documents(n, tokens, d)
    batch = collect(pages)
    table = Table(title=f"Compression of {n} pages of {tokens:,} x {d}, pages per second")
    for column in ("k", "EigenLI", "Ward", "k-means++", "faster than Ward", "than k-means++"):
        table.add_column(column, justify="right")
    for k in ks:
        times = best_of(
            rounds,
            ours=lambda k=k: compress(pages, k),  # type: ignore[misc]
            ward=lambda k=k: pool_ward(batch, k),  # type: ignore[misc]
            kmeans=lambda k=k: pool_kmeans(batch, k),  # type: ignore[misc]
        )
        speeds = [f"{n / seconds:.1f}" for seconds in times.values()]
        ratios = [f"{times[name] / times['ours']:.1f}x" for name in ("ward", "kmeans")]
        table.add_row(str(k), *speeds, *ratios)
    return table


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pages", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=1250, help="vectors of a page")
    parser.add_argument("--dim", type=int, default=320)
    parser.add_argument("--k", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    Console().print(
        compression(options.pages, options.tokens, options.dim, options.k, options.rounds)
    )


if __name__ == "__main__":
    main()
