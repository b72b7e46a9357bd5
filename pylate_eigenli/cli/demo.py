"""``eigenli demo``: search the Python standard library offline, and see what EigenLI costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .errors import Debug, one_line_errors
from .options import Json

if TYPE_CHECKING:
    from ..evaluation.experiment import Answer, Experiment, Stage
    from ..models.encoder import Advance

QUESTIONS = (
    "how do I compress a file?",
    "run a shell command and capture its output",
    "make a temporary directory",
    "which function sorts a list?",
    "wait until a thread has finished",
)


def demo(
    questions: Annotated[
        list[str] | None, typer.Argument(help="Questions to ask besides the built-in ones.")
    ] = None,
    documents: Annotated[int, typer.Option(min=50, help="Docstrings to index, at most.")] = 2000,
    k: Annotated[int, typer.Option(min=1, help="Directions EigenLI keeps of a document.")] = 32,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME_OR_PATH", help="Use this PyLate model, not the bundled one."),
    ] = None,
    index_folder: Annotated[
        Path | None, typer.Option(help="Keep the index of the docstrings in this folder.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Search Python's standard library by meaning, offline, and compare EigenLI with MaxSim."""
    with one_line_errors(debug):
        with _progress() as stage:
            with stage("Starting PyLate", None):
                from ..evaluation.experiment import INDEX_NAME, run
            experiment = run(
                [*QUESTIONS, *(questions or [])],
                documents=documents,
                k=k,
                model=model,
                index_folder=index_folder,
                stage=stage,
            )
        if as_json:
            typer.echo(json.dumps(asdict(experiment), indent=2))
            return
        console = Console(highlight=False)
        for answer in experiment.answers:
            _print_answer(console, answer)
        _print_comparison(console, experiment)
        if index_folder is not None:
            console.print(f"\nThe index of the docstrings is kept in {index_folder / INDEX_NAME}.")


@contextmanager
def _progress() -> Iterator[Stage]:
    """Show stages on stderr, so that stdout holds results and nothing else."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    ) as progress:

        @contextmanager
        def stage(description: str, steps: int | None) -> Iterator[Advance]:
            task = progress.add_task(description, total=steps)
            yield lambda done: progress.advance(task, done)
            progress.update(task, total=steps or 1, completed=steps or 1)

        yield stage


def _print_answer(console: Console, answer: Answer) -> None:
    hits = Table.grid(padding=(0, 2), expand=True)
    hits.add_column(no_wrap=True, style="cyan", ratio=2)
    hits.add_column(no_wrap=True, ratio=3)
    for hit in answer.hits:
        # Text, because docstrings are full of brackets that rich would take for markup.
        hits.add_row(Text(f"  {hit.id}"), Text(hit.summary))
    console.print(Text(f"\n{answer.question}", style="bold"))
    console.print(hits)


def _print_comparison(console: Console, experiment: Experiment) -> None:
    table = Table(title="The same token embeddings, searched in two ways")
    table.add_column("")
    for heading in ("bytes / document", "build, s", "ms / query", "Success@1", "MRR@10"):
        table.add_column(heading, justify="right")
    for row in experiment.comparison:
        table.add_row(
            row.method,
            f"{row.bytes_per_document:,.0f}",
            f"{row.build_seconds:.2f}",
            f"{row.milliseconds_per_query:.1f}",
            f"{row.success_at_1:.3f}",
            f"{row.mrr_at_10:.3f}",
        )
    console.print()
    console.print(table)
    console.print(
        f"{experiment.documents:,} docstrings of {experiment.tokens_per_document:.0f} tokens on "
        f"average, both stored as float16; encoding took {experiment.encoding_seconds:.1f} s "
        "and is common to both.\n"
        f"Quality: the first sentence of {experiment.known_items} docstrings is the query, and the "
        "docstring it came from, indexed without that sentence, the one right answer among all "
        f"{experiment.documents:,}.",
        style="dim",
    )
