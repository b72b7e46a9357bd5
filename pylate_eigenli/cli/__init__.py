"""The ``eigenli`` command. Each subcommand is a module of this package.

A subcommand imports torch, PyLate and the rest of this library inside its function, so that
``eigenli --help`` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from . import pages
from .convert import convert
from .demo import demo
from .errors import reporting_errors
from .evaluate import evaluate
from .export import export
from .indexing import add, index
from .maintenance import compact, info, remove, verify, warmup
from .paper import paper
from .searching import search
from .serve import serve
from .spectrum import spectrum
from .terminal import echo

app = typer.Typer(
    name="eigenli",
    help="Late-interaction retrieval with one small subspace, or one vector, per document.",
    no_args_is_help=True,
    add_completion=False,
    # cli.errors reports errors, except with --debug.
    pretty_exceptions_enable=False,
)
for panel, commands in {
    "Usual commands": (index, search, serve),
    "Maintain an index": (add, remove, info, verify, compact, convert, export, warmup),
    "Try and measure": (demo, spectrum, evaluate, paper),
}.items():
    for command in commands:
        app.command(rich_help_panel=panel)(reporting_errors(command))
app.add_typer(pages.app, name="pages", rich_help_panel="Pages, by how they look")


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"eigenli {__version__}")
        raise typer.Exit


@app.callback()
def _eigenli(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    # The callback also keeps a lone subcommand from becoming the whole application.
    pass


def main() -> None:
    """Run the command line: the entry point of the ``eigenli`` script."""
    app()
