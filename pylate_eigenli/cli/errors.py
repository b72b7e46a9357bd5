"""How every command reports failure: one line on stderr and exit code 1. Warnings are lines too."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any

import typer

from .terminal import echo, warn

_Debug = Annotated[
    bool, typer.Option("--debug", help="Show the full traceback if something goes wrong.")
]


def reporting_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option ``--debug``, and report its errors in one line without it."""

    @wraps(command)
    def reported(*, debug: bool = False, **options: Any) -> None:
        with one_line_errors(debug):
            command(**options)

    # Typer reads the options of a command from its signature.
    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter(
        "debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_Debug
    )
    parameters = [*signature.parameters.values(), option]
    reported.__annotations__ = {p.name: p.annotation for p in parameters}
    # The help is wrapped at the width of the terminal, not at that of the source.
    paragraphs = (command.__doc__ or "").split("\n\n")
    reported.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    reported.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return reported


@contextmanager
def one_line_errors(debug: bool) -> Iterator[None]:
    """Turn an exception into one line on stderr and exit code 1, unless ``debug``; warnings too."""
    with warnings.catch_warnings():
        if not debug:
            warnings.showwarning = warn  # type: ignore[assignment]
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
