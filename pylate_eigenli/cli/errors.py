"""How every command reports failure: one line on stderr and exit code 1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from .terminal import echo

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
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        echo(f"error: {reason}", err=True, color=typer.colors.RED)
        raise typer.Exit(1) from None
