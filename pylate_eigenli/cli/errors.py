"""How every command reports failure: one line on stderr and exit code 1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

Debug = Annotated[
    bool, typer.Option("--debug", help="Show the full traceback if something goes wrong.")
]


@contextmanager
def one_line_errors(debug: bool) -> Iterator[None]:
    """Turn an exception into one line on stderr and exit code 1, unless ``debug``."""
    try:
        yield
    except typer.Exit:
        raise
    except Exception as error:
        if debug:
            raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        typer.secho(f"error: {lines[0]}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from None
