"""Plots of results: the quality of methods by their size and by their time."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ..errors import require
from .methods import parse
from .run import Result

COSTS = {"bytes_per_document": "bytes per document", "ms_per_query": "milliseconds per query"}
"""What quality is drawn against: a field of a result, and its words."""

_PURPOSE = "drawing results"
_MARKERS = "oDs^vP*X"
_LEAST_RANGE = 0.1  # of the quality that an axis shows


def plot_all(results: Iterable[Result], column: str, folder: Path) -> list[Path]:
    """Draw a metric such as ``"nDCG@10"`` by size and by time; return the two files."""
    found = list(results)
    names = {"bytes_per_document": "quality-by-size.png", "ms_per_query": "quality-by-time.png"}
    for cost, name in names.items():
        plot(found, column, cost, folder / name)
    return [folder / name for name in names.values()]


def plot(
    results: Sequence[Result],
    column: str,
    cost: str,
    path: str | os.PathLike[str],
    *,
    label: Callable[[Result], str] | None = None,
    mark: Callable[[Result], str] | None = None,
) -> None:
    """Draw the quality of methods against a cost; results that differ in k alone are joined.

    Each collection gets a plot of its own. The cost is one of :data:`COSTS`; the suffix of the path
    sets the format. Methods of the same ``label`` are joined, and ``mark`` tells them apart: by default
    the label is the name without k, and the mark is k.

    Examples
    --------
    >>> import tempfile
    >>> result = Result("model", "data", "full", 10, {"nDCG@10": [1.0, 0.5]}, 0.1, 512.0, 1.0, 0.5)
    >>> path = Path(tempfile.mkdtemp()) / "sizes.svg"
    >>> plot([result], "nDCG@10", "bytes_per_document", path)
    >>> path.read_text().startswith("<?xml")
    True
    """
    figure_type = require("matplotlib.figure", "plot", _PURPOSE).Figure
    ticker = require("matplotlib.ticker", "plot", _PURPOSE)
    label, mark = label or _series, mark or _k
    collections = list(dict.fromkeys(result.data for result in results))
    names = list(dict.fromkeys(map(label, results)))
    figure = figure_type(figsize=(1.5 + 5 * len(collections), 4.2), layout="constrained")
    axes = figure.subplots(1, len(collections), squeeze=False)[0]
    lines = {}
    for axis, data in zip(axes, collections, strict=True):
        for number, name in enumerate(names):
            points = [r for r in results if r.data == data and label(r) == name]
            points.sort(key=lambda result: getattr(result, cost))
            at = [getattr(result, cost) for result in points]
            values = [result[column] for result in points]
            marker = _MARKERS[number % len(_MARKERS)]
            (lines[name],) = axis.plot(at, values, marker=marker, color=f"C{number % 10}", lw=1)
            for x, y, result in zip(at, values, points, strict=True):
                if len(points) > 1:
                    axis.annotate(
                        mark(result),
                        (x, y),
                        xytext=(4, 4),
                        textcoords="offset points",
                        fontsize=8,
                    )
        axis.set(xscale="log", title=data, xlabel=COSTS[cost], ylabel=column)
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:,g}"))
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        axis.margins(0.12)
        low, high = axis.get_ylim()
        spare = max(_LEAST_RANGE - (high - low), 0) / 2  # small differences are to look small
        axis.set_ylim(low - spare, high + spare)
        axis.grid(alpha=0.3)
    figure.legend(lines.values(), lines.keys(), loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=150)


def _k(result: Result) -> str:
    return str(parse(result.method).k)


def _series(result: Result) -> str:
    """Return the name of a method without its k."""
    plain, colon, options = result.method.partition(":")
    return re.sub(r"-[0-9]+$", "", plain) + colon + options
