"""``eigenli bench``: the benchmarks, of this machine or of a collection."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .errors import Debug, one_line_errors
from .options import Json

QUERY_TOKENS = 32
TOKENS = 180


def bench(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="A collection in BEIR's layout, to compare whole retrieval systems on. Without "
            "it, compression and search are timed on synthetic documents."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME_OR_PATH", help="PyLate model for the collection.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for tables, plots and embeddings of the collection.")
    ] = Path("results"),
    documents: Annotated[int, typer.Option(min=1, help="Synthetic documents to compress.")] = 512,
    collection: Annotated[
        int, typer.Option(min=0, help="Synthetic documents to search; 0: skip.")
    ] = 10_000,
    dim: Annotated[int, typer.Option(min=1, help="Dimension of synthetic tokens.")] = 128,
    k: Annotated[int, typer.Option(min=1, help="Directions kept of synthetic documents.")] = 32,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, of which the best counts.")] = 3,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Time compression and search here, or compare retrieval systems on a collection."""
    with one_line_errors(debug):
        if folder is None:
            _core(documents, collection, dim, k, rounds, as_json)
        elif model is None:
            raise ValueError("a collection needs a model to encode it: name one with --model")
        else:
            _pipelines(folder, model, out, as_json)


def _core(n: int, collection: int, dim: int, k: int, rounds: int, as_json: bool) -> None:
    from ..benchmarks import core

    shape = (collection, dim, k, TOKENS, QUERY_TOKENS)
    compressed = core.compression([60, 180, 512], dim, k, n, rounds)
    searched = core.searching(*shape, rounds) if collection else []
    if as_json:
        report = {
            "compression": [asdict(row) for row in compressed],
            "search": [asdict(row) for row in searched],
        }
        typer.echo(json.dumps(report))
        return
    console = Console()
    console.print(core.compression_table(compressed, dim, k))
    if searched:
        console.print(core.searching_table(searched, *shape))


def _pipelines(folder: Path, model: str, out: Path, as_json: bool) -> None:
    from ..benchmarks import pipelines

    rows, failures = pipelines.run(folder, model, out)
    if as_json:
        report = {"systems": [asdict(row) for row in rows], "not_measured": failures}
        typer.echo(json.dumps(report))
        return
    typer.echo(pipelines.to_markdown(rows))
    for name, reason in failures.items():
        typer.echo(f"not measured: {name} ({reason})")
