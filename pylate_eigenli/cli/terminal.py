"""Text for people on a terminal, without control characters of documents, names and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import typer
from rich.console import Console
from rich.text import Text

# Escapes, ends of lines, marks that turn the direction of text, and halves of surrogate pairs.
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(value: object) -> str:
    """Return a value as one line that leaves the terminal as it is.

    Examples
    --------
    >>> printable("red\\x1b[2J\\nforged line")
    'red�[2J�forged line'
    """
    return _CONTROL.sub("\ufffd", str(value))


def echo(line: object, *, err: bool = False, color: str | None = None) -> None:
    """Print one line."""
    typer.secho(printable(line), err=err, fg=color)


def warn(message: object, *_: object) -> None:
    """Print a warning; the function can stand for ``warnings.showwarning``."""
    echo(f"warning: {message}", err=True, color=typer.colors.YELLOW)


def echo_report(report: Mapping[str, object], line: str, *, as_json: bool) -> None:
    """Print what a command has done, as JSON or as a line for people."""
    echo(json.dumps(report) if as_json else line)


def echo_lines(lines: str) -> None:
    """Print a text of several lines."""
    for line in lines.split("\n"):
        echo(line)


def text(value: object, style: str = "", *, fold: bool = False) -> Text:
    """Return a line for rich that is not taken for markup: documents are full of brackets."""
    return Text(printable(value), style, overflow="fold" if fold else None)


def has_bars(as_json: bool) -> bool:
    """Return whether progress bars can be shown: in a log they would be one long line."""
    return not as_json and Console(stderr=True).is_terminal


def working(message: str) -> AbstractContextManager[object]:
    """Say what is being done, on stderr: while it lasts on a terminal, and as a line in a log."""
    console = Console(stderr=True)
    if console.is_terminal:
        return console.status(message)
    echo(f"{message} ...", err=True)
    return nullcontext()
