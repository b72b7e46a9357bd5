"""``eigenli paper``: the numbers of the EigenLI paper, and whether they agree with one another."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from .errors import Debug, one_line_errors
from .options import Json

if TYPE_CHECKING:
    from ..evaluation.paper.audit import Comparison
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
        int | None, typer.Option("-k", "--k", min=1, help="Only this many vectors per document.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Show the means beside the same means derived from other tables."
        ),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print what the EigenLI paper reports, table by table, to compare your own results with."""
    with one_line_errors(debug):
        from ..evaluation.paper.results import TABLES, canonical, load, select

        if table is not None:
            table = canonical("table", table)
        cells = select(model=model, dataset=dataset, method=method, metric=metric, k=k)
        console = Console(highlight=False)
        if check:
            _check(console, cells, table, as_json)
        elif table is None and len(cells) == len(load()):
            _list_tables(console, TABLES, cells, as_json)
        else:
            cells = [cell for cell in cells if table in (None, cell.table)]
            if not cells:
                raise LookupError("the paper has no such number")
            if as_json:
                typer.echo(json.dumps([asdict(cell) for cell in cells], indent=2))
            else:
                _print_tables(console, cells, lambda cell: Text(cell.text))


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


def _check(console: Console, cells: Iterable[Cell], table: str | None, as_json: bool) -> None:
    from ..evaluation.paper import audit as paper_audit

    chosen = set(cells)
    means, differences, repeats = (
        [
            comparison
            for comparison in compare()
            if comparison.printed in chosen and table in (None, *_tables(comparison))
        ]
        for compare in (paper_audit.means, paper_audit.differences, paper_audit.repeats)
    )
    everything = means + differences + repeats
    disagreements = [comparison for comparison in everything if comparison.agrees is False]
    if as_json:
        report = {
            "compared": {
                "means": sum(comparison.derived is not None for comparison in means),
                "differences": len(differences),
                "repeats": len(repeats),
            },
            "means": [_as_dict(comparison) for comparison in means],
            "disagreements": [_as_dict(comparison) for comparison in disagreements],
        }
        typer.echo(json.dumps(report, indent=2))
        return
    by_cell = {comparison.printed: comparison for comparison in means}
    _print_tables(console, by_cell, lambda cell: _printed_and_derived(by_cell[cell]))
    underived = sum(comparison.derived is None for comparison in means)
    console.print(
        "\nMeans, as printed and as derived from other tables: "
        f"{len(means) - underived} compared; of {underived} (?) the paper prints no parts\n"
        f"Differences beside the numbers they are of: {len(differences)} compared\n"
        f"Numbers printed in two tables: {len(repeats)} compared\n"
        f"Disagreements that rounding cannot explain: {len(disagreements)}"
    )
    for comparison in disagreements:
        console.print(_in_words(comparison))


def _print_tables(console: Console, cells: Iterable[Cell], text: Callable[[Cell], Text]) -> None:
    from ..evaluation.paper.results import TABLES, select

    by_table: dict[str, list[Cell]] = {}
    for cell in cells:
        by_table.setdefault(cell.table, []).append(cell)
    for name, members in by_table.items():
        # What varies in the whole table labels its rows, so that no filter hides what they are.
        whole = select(table=name)
        labels = [field for field in ROW_FIELDS if len({getattr(c, field) for c in whole}) > 1]
        pivot = _pivot(members, labels, text)
        # Wider than the terminal rather than with numbers cut short.
        unbounded = console.options.update(max_width=1000)
        console.width = max(console.width, Measurement.get(console, unbounded, pivot).maximum)
        console.print(Text(f"\n{name}: {TABLES[name]}", style="bold"))
        console.print(pivot)


def _pivot(cells: Iterable[Cell], labels: list[str], text: Callable[[Cell], Text]) -> Table:
    """Lay out cells with a row for each combination of labels and a column per metric@cutoff."""
    rows: dict[tuple[str, ...], dict[str, Text]] = {}
    for cell in cells:
        row = rows.setdefault(tuple(_label(cell, field) for field in labels), {})
        row[_column(cell)] = text(cell)
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    table = Table(*labels)
    for column in columns:
        table.add_column(column, justify="right")
    for label, row in rows.items():
        table.add_row(*label, *(row.get(column, Text()) for column in columns))
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


def _printed_and_derived(comparison: Comparison) -> Text:
    text = Text(comparison.printed.text)
    if comparison.derived is None:
        return text.append(" ?", style="dim")
    # One decimal more than printed shows how the rounding went.
    derived = f" {comparison.derived.value:.{comparison.printed.decimals + 1}f}"
    return text.append(derived, style="dim" if comparison.agrees else "red")


def _in_words(comparison: Comparison) -> str:
    cell, derived = comparison.printed, comparison.derived
    assert derived is not None
    k = "" if cell.k is None else f"k={cell.k}"
    of = (_column(cell), cell.model, cell.dataset, cell.method, k, cell.baseline)
    return (
        f"  {', '.join(filter(None, of))}: {cell.text} in {cell.table}, "
        f"{derived.value:.{cell.decimals}f} from {', '.join(derived.tables)}"
    )


def _tables(comparison: Comparison) -> tuple[str, ...]:
    """Return the tables a comparison is between."""
    derived = comparison.derived
    return (comparison.printed.table, *(() if derived is None else derived.tables))


def _as_dict(comparison: Comparison) -> dict[str, Any]:
    derived = None if comparison.derived is None else asdict(comparison.derived)
    return {**asdict(comparison.printed), "derived": derived, "agrees": comparison.agrees}
