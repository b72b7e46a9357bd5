"""``eigenli paper``: the numbers of the EigenLI paper."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from .errors import Debug, one_line_errors
from .options import Json

if TYPE_CHECKING:
    from ..evaluation.paper.results import Cell

ROW_FIELDS = ("model", "dataset", "method", "k", "bits", "baseline", "statistic", "centered")


def paper(
    table: Annotated[
        str | None, typer.Argument(help="The table to print; without it, the tables are listed.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Only this token encoder.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.")] = None,
    method: Annotated[str | None, typer.Option(help="Only this method.")] = None,
    metric: Annotated[str | None, typer.Option(help="Only Recall, nDCG, MRR or Time.")] = None,
    k: Annotated[
        int | None,
        typer.Option("-k", "--directions", min=1, help="Only this many vectors per document."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the numbers of the EigenLI paper, table by table, to compare your own results with."""
    with one_line_errors(debug):
        from ..evaluation.paper.results import TABLES, canonical, load, select

        if table is not None:
            table = canonical("table", table)
        cells = select(model=model, dataset=dataset, method=method, metric=metric, k=k)
        console = Console(highlight=False)
        if table is None and len(cells) == len(load()):
            numbers = Counter(cell.table for cell in cells)
            listing = [
                {"table": name, "description": description, "numbers": numbers[name]}
                for name, description in TABLES.items()
            ]
            if as_json:
                typer.echo(json.dumps(listing, indent=2))
                return
            tables = Table(*listing[0])
            for row in listing:
                tables.add_row(*map(str, row.values()))
            console.print(tables)
            return
        cells = [cell for cell in cells if table in (None, cell.table)]
        if not cells:
            raise LookupError("the paper has no such number")
        if as_json:
            typer.echo(json.dumps([asdict(cell) for cell in cells], indent=2))
        else:
            _print_tables(console, cells)


def _print_tables(console: Console, cells: list[Cell]) -> None:
    from ..evaluation.paper.results import TABLES, select

    for name in dict.fromkeys(cell.table for cell in cells):
        # Rows are labelled by every field that varies in the whole table, whatever the filter.
        whole = select(table=name)
        labels = [field for field in ROW_FIELDS if len({getattr(c, field) for c in whole}) > 1]
        pivot = _pivot([cell for cell in cells if cell.table == name], labels)
        # A table wider than the terminal is better than truncated numbers.
        unbounded = console.options.update(max_width=1000)
        console.width = max(console.width, Measurement.get(console, unbounded, pivot).maximum)
        console.print(Text(f"\n{name}: {TABLES[name]}", style="bold"))
        console.print(pivot)


def _pivot(cells: Iterable[Cell], labels: list[str]) -> Table:
    """Lay out cells with a row for each combination of labels and a column per metric@cutoff."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for cell in cells:
        row = rows.setdefault(tuple(_label(cell, field) for field in labels), {})
        row[cell.metric if cell.cutoff is None else f"{cell.metric}@{cell.cutoff}"] = cell.text
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    table = Table(*labels)
    for column in columns:
        table.add_column(column, justify="right")
    for label, row in rows.items():
        table.add_row(*label, *(row.get(column, "") for column in columns))
    return table


def _label(cell: Cell, field: str) -> str:
    value = getattr(cell, field)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "all" if field == "model" else ""
    return "" if value == "value" else str(value)
