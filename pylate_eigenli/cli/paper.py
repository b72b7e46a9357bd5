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

from .errors import Debug, one_line_errors
from .options import Json
from .terminal import text

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
            _list_tables(console, TABLES, cells, as_json)
        else:
            cells = [cell for cell in cells if table in (None, cell.table)]
            if not cells:
                raise LookupError("the paper has no such number")
            if as_json:
                typer.echo(json.dumps([asdict(cell) for cell in cells], indent=2))
            else:
                _print_tables(console, cells)


def _list_tables(
    console: Console, descriptions: dict[str, str], cells: Iterable[Cell], as_json: bool
) -> None:
    numbers = Counter(cell.table for cell in cells)
    if as_json:
        listing = [
            {"table": name, "description": description, "numbers": numbers[name]}
            for name, description in descriptions.items()
        ]
        typer.echo(json.dumps(listing, indent=2))
        return
    tables = Table("table", "what it holds")
    tables.add_column("numbers", justify="right")
    for name, description in descriptions.items():
        tables.add_row(name, description, str(numbers[name]))
    console.print(tables)


def _print_tables(console: Console, cells: Iterable[Cell]) -> None:
    from ..evaluation.paper.results import TABLES, select

    by_table: dict[str, list[Cell]] = {}
    for cell in cells:
        by_table.setdefault(cell.table, []).append(cell)
    for name, members in by_table.items():
        # Rows are labelled by every field that varies in the whole table, whatever the filter.
        whole = select(table=name)
        labels = [field for field in ROW_FIELDS if len({getattr(c, field) for c in whole}) > 1]
        pivot = _pivot(members, labels)
        # A table wider than the terminal is better than truncated numbers.
        unbounded = console.options.update(max_width=1000)
        console.width = max(console.width, Measurement.get(console, unbounded, pivot).maximum)
        console.print("\n", text(f"{name}: {TABLES[name]}", "bold"), sep="")
        console.print(pivot)


def _pivot(cells: Iterable[Cell], labels: list[str]) -> Table:
    """Lay out cells with a row for each combination of labels and a column per metric@cutoff."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for cell in cells:
        row = rows.setdefault(tuple(_label(cell, field) for field in labels), {})
        row[_column(cell)] = cell.text
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    table = Table(*labels)
    for column in columns:
        table.add_column(column, justify="right")
    for label, row in rows.items():
        table.add_row(*label, *(row.get(column, "") for column in columns))
    return table


def _column(cell: Cell) -> str:
    return cell.metric if cell.cutoff is None else f"{cell.metric}@{cell.cutoff}"


def _label(cell: Cell, field: str) -> str:
    value = getattr(cell, field)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "all" if field == "model" else ""
    return "" if value == "value" else str(value)
