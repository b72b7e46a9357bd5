"""Results as JSON, CSV and Markdown, compared with full MaxSim and the paper."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from .bootstrap import Interval, geometric_interval, paired_interval
from .methods import parse
from .paper import results as paper
from .run import COLUMNS, Result

_IN_PAPER = {
    "full": ("Full MaxSim", False),
    "eigenli": ("EigenLI", False),
    "eigenli-sv": ("EigenLI-SV", False),
    "kmeans": ("KMeans++", False),
    "ward": ("Ward", False),
    "muvera": ("MUVERA", False),
    "muvera-centered": ("MUVERA", True),
}
"""By family: the paper's name of the method, and whether tokens are centered."""

_SHORT_COLUMNS = tuple(column for column in COLUMNS if column.endswith("@10"))


def in_paper(name: str) -> tuple[str, int | None, bool] | None:
    """Return the paper's name of a method, its k, and whether tokens are centered.

    Examples
    --------
    >>> in_paper("eigenli-sv-32:centering=both,dtype=float32")
    ('EigenLI-SV', 32, True)
    >>> in_paper("eigenli-sv-32:preset=plus") is None
    True
    """
    spec = parse(name)
    centering = spec.options.get("centering", "none")
    full_precision = spec.options.get("dtype", "float32") in ("float32", "float16", "int8")
    if (
        spec.family.name not in _IN_PAPER
        or spec.options.keys() - {"centering", "dtype"}
        or centering not in ("none", "both")
        or not full_precision
    ):
        return None
    method, centered = _IN_PAPER[spec.family.name]
    if centering == "both":
        # The paper prints centered scores for EigenLI-SV only; both have the same score.
        return "EigenLI-SV", spec.k, True
    return method, spec.k, centered


@dataclass(frozen=True)
class Row:
    """A result and what it is compared with, if that was measured on the same collection.

    ``full`` is the result of full MaxSim, ``seconds_of_eigenli`` the build time of EigenLI with the
    same k.
    """

    result: Result
    full: Result | None
    seconds_of_eigenli: float | None

    @cached_property
    def paper(self) -> dict[str, float]:
        """The paper's numbers for the same model, data and method, by metric and cutoff."""
        known = in_paper(self.result.method)
        if known is None:
            return {}
        method, k, centered = known
        try:
            cells = paper.select(
                model=self.result.model,
                dataset=self.result.data,
                method=method,
                k=k,
                centered=centered,
                statistic="value",
            )
        except ValueError:  # another model or dataset than the paper's
            return {}
        found = {f"{cell.metric}@{cell.cutoff}": cell.value for cell in reversed(cells)}
        return {column: found[column] for column in COLUMNS if column in found}

    @cached_property
    def versus_full(self) -> dict[str, Interval]:
        """The difference to full MaxSim, with its interval, by metric and cutoff."""
        if self.full is None or self.full is self.result:
            return {}
        full = self.full.per_query
        return {
            column: paired_interval(self.result.per_query[column], full[column])
            for column in COLUMNS
        }

    @property
    def times_eigenli(self) -> float | None:
        """Build time as a multiple of EigenLI's with the same k."""
        if not self.seconds_of_eigenli or self.result.method == "full":
            return None
        return self.result.build_seconds / self.seconds_of_eigenli


class Report:
    """Results compared with full MaxSim and EigenLI on the same collection, and with the paper."""

    def __init__(self, results: Iterable[Result]) -> None:
        by_name = {(result.data, result.method): result for result in results}
        self.rows = []
        for (data, name), result in by_name.items():
            eigenli = by_name.get((data, f"eigenli-{parse(name).k}"))
            seconds = None if eigenli is None else eigenli.build_seconds
            self.rows.append(Row(result, by_name.get((data, "full")), seconds))

    @cached_property
    def overall(self) -> dict[str, dict[str, Interval]]:
        """By method and column, the geometric mean over collections of the ratio to full, minus 1.

        Empty for one collection; methods that were not measured on all collections are left out.
        """
        collections = {row.result.data for row in self.rows}
        pairs: dict[str, list[tuple[Result, Result]]] = {}
        for row in self.rows:
            if row.full is not None and row.full is not row.result:
                pairs.setdefault(row.result.method, []).append((row.result, row.full))
        return {
            name: {
                column: geometric_interval(
                    [result.per_query[column] for result, _ in compared],
                    [full.per_query[column] for _, full in compared],
                )
                for column in COLUMNS
                # A ratio to 0 does not exist.
                if all(full[column] > 0 for _, full in compared)
            }
            for name, compared in pairs.items()
            if len(compared) == len(collections) > 1
        }

    def to_json(self) -> str:
        """Return everything but the values per query."""
        entries = [
            {
                **{name: value for name, value in vars(row.result).items() if name != "per_query"},
                "queries": len(row.result.per_query[COLUMNS[0]]),
                "build_times_eigenli": row.times_eigenli,
                "metrics": {column: _numbers(row, column) for column in COLUMNS},
            }
            for row in self.rows
        ]
        ratios = {
            name: {column: interval._asdict() for column, interval in columns.items()}
            for name, columns in self.overall.items()
        }
        return json.dumps({"results": entries, "geometric_mean_ratio_to_full": ratios}, indent=2)

    def to_csv(self) -> str:
        """Return a line for every metric and cutoff of every result."""
        text = io.StringIO()
        names = ["model", "data", "method", "metric", "cutoff"]
        names += ["value", "paper", "minus_paper", "minus_full", "low", "high"]
        names += ["build_seconds", "bytes_per_document", "ms_per_query", "ms_per_query_in_batch"]
        writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in self.rows:
            for column in COLUMNS:
                metric, cutoff = column.split("@")
                numbers = _numbers(row, column)
                writer.writerow({**vars(row.result), "metric": metric, "cutoff": cutoff, **numbers})
        return text.getvalue()

    def to_markdown(self) -> str:
        """Return a section per collection, and a table over all of them if there are several."""
        collections = dict.fromkeys(row.result.data for row in self.rows)
        text = "".join(
            _section([row for row in self.rows if row.result.data == data]) for data in collections
        )
        return text + _comparison(
            "All collections: geometric mean of the ratio to full MaxSim, minus 1, with its 95 % "
            "interval",
            _SHORT_COLUMNS,
            self.overall,
            "{:+.1%} [{:+.1%}, {:+.1%}]",
        )


def _section(rows: Sequence[Row]) -> str:
    """Return the tables of one collection."""
    result = rows[0].result
    queries = len(result.per_query[COLUMNS[0]])
    size = f"{result.documents:,} documents, {queries:,} queries, {result.model}"
    measured = markdown(
        ["method", *COLUMNS, "bytes / document", "build, s", "x EigenLI", "ms / query"],
        [
            [
                row.result.method,
                *(f"{row.result[column]:.4f}" for column in COLUMNS),
                f"{row.result.bytes_per_document:,.0f}",
                f"{row.result.build_seconds:.2f}",
                "" if row.times_eigenli is None else f"{row.times_eigenli:.1f}",
                f"{row.result.ms_per_query:.1f}",
            ]
            for row in rows
        ],
    )
    versus_full = _comparison(
        "Difference to full MaxSim, with the 95 % interval of a paired bootstrap over queries",
        _SHORT_COLUMNS,
        {row.result.method: row.versus_full for row in rows},
        "{:+.3f} [{:+.3f}, {:+.3f}]",
    )
    in_paper = _comparison(
        "The paper's numbers, and the difference of ours to them",
        COLUMNS,
        {
            row.result.method: {
                column: (number, row.result[column] - number)
                for column, number in row.paper.items()
            }
            for row in rows
        },
        "{:.4f} ({:+.4f})",
    )
    return f"## {result.data}\n\n{size}\n\n{measured}{versus_full}{in_paper}"


def _numbers(row: Row, column: str) -> dict[str, float]:
    numbers = {"value": row.result[column]}
    if column in row.paper:
        numbers["paper"] = row.paper[column]
        numbers["minus_paper"] = numbers["value"] - row.paper[column]
    if column in row.versus_full:
        interval = row.versus_full[column]
        numbers |= {"minus_full": interval.difference, "low": interval.low, "high": interval.high}
    return numbers


def _comparison(
    title: str,
    columns: Sequence[str],
    by_method: Mapping[str, Mapping[str, tuple[float, ...]]],
    form: str,
) -> str:
    """Return a table with its title, or nothing if nothing can be compared."""
    rows = [
        [name, *(form.format(*found[column]) if column in found else "" for column in columns)]
        for name, found in by_method.items()
        if found
    ]
    return f"{title}:\n\n{markdown(['method', *columns], rows)}" if rows else ""


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]], labels: int = 1) -> str:
    """Return a table; the first columns, as many as there are labels, are aligned to the left."""
    lines = [headings, ["---" if i < labels else "---:" for i in range(len(headings))], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"
