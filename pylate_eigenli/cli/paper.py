"""``eigenli paper``: the numbers of the EigenLI paper."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Json
from .terminal import echo_lines

if TYPE_CHECKING:
    from ..evaluation.paper.results import Cell

ROW_FIELDS = ("model", "dataset", "method", "k", "bits", "baseline", "statistic", "centered")


def paper(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE", help="The table to print; without it, the tables are listed."
        ),
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
) -> None:
    """Print the numbers of the EigenLI paper, table by table, to compare your own results with."""
    from ..evaluation.paper.results import TABLES, load, select
    from ..evaluation.report import markdown

    cells = select(table=table, model=model, dataset=dataset, method=method, metric=metric, k=k)
    if not cells:
        raise LookupError("the paper has no such number")
    by_table = {name: [cell for cell in cells if cell.table == name] for name in TABLES}
    if len(cells) == len(load()):
        listing = [
            {"table": name, "description": TABLES[name], "numbers": len(members)}
            for name, members in by_table.items()
        ]
        if as_json:
            typer.echo(json.dumps(listing, indent=2))
        else:
            rows = [[*map(str, table.values())] for table in listing]
            echo_lines(markdown(list(listing[0]), rows, 2))
    elif as_json:
        typer.echo(json.dumps([asdict(cell) for cell in cells], indent=2))
    else:
        for name, members in by_table.items():
            if members:
                echo_lines(f"{name}: {TABLES[name]}\n\n{_pivot(members)}")


def _pivot(cells: list[Cell]) -> str:
    """Return a table with a row for each combination of labels and a column per metric@cutoff."""
    from ..evaluation.paper.results import select
    from ..evaluation.report import markdown

    # Rows are labelled by every field that varies in the whole table, whatever the filter.
    whole = select(table=cells[0].table)
    labels = [field for field in ROW_FIELDS if len({getattr(c, field) for c in whole}) > 1]
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for cell in cells:
        row = rows.setdefault(tuple(_label(cell, field) for field in labels), {})
        row[cell.metric if cell.cutoff is None else f"{cell.metric}@{cell.cutoff}"] = cell.text
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    lines = [[*label, *(row.get(column, "") for column in columns)] for label, row in rows.items()]
    return markdown([*labels, *columns], lines, len(labels))


def _label(cell: Cell, field: str) -> str:
    value = getattr(cell, field)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "all" if field == "model" else ""
    return "" if value == "value" else str(value)
