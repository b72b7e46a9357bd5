"""Progress of commands that encode: bars on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from .terminal import echo

SECONDS_BETWEEN_LINES = 10.0
"""Of progress, if there is no terminal to show a bar."""


class Bars:
    """Progress bars on stderr; stdout holds only results."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._progress.start()

    def close(self) -> None:
        """Take the bars off the terminal."""
        self._progress.stop()

    @contextmanager
    def task(
        self,
        description: str,
        total: int | None = None,
        *,
        logged: bool = False,
        unit: str = "documents",
    ) -> Iterator[Any]:
        """Show a task while the block runs; yields a function that takes progress.

        What takes long to begin is ``logged`` at once if there is no terminal.
        """
        if logged and self._progress.disable:
            echo(f"{description} ...", err=True)
        bar = self._progress.add_task(description, total=total, rate="")
        begin = last = time.perf_counter()
        read = done = 0

        def advance(parts: int, documents: int) -> None:
            nonlocal last, read, done
            read, done, now = read + parts, done + documents, time.perf_counter()
            rate = done / max(now - begin, 1e-9)
            shown = f"{rate:.1f} {unit}/s" if done else ""
            self._progress.update(bar, advance=parts, rate=shown)
            if self._progress.disable and now - last >= SECONDS_BETWEEN_LINES:
                last = now
                of_all = "" if total is None else f" of {total:,}"
                echo(f"{description}: read {read:,}{of_all}, encoded {done:,} {unit}", err=True)

        yield advance
        self._progress.remove_task(bar)


@contextmanager
def progress_bars() -> Iterator[Bars]:
    """Show bars while the block runs."""
    bars = Bars()
    try:
        yield bars
    finally:
        bars.close()
