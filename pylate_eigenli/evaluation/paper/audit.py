"""Whether the paper's numbers agree with one another, as far as rounding lets one tell.

A mean is derived from the cells it averages, a difference from the two numbers it is of, and a
number printed in two tables from its other print. Rounding is followed through each derivation as
an interval, so two numbers disagree only if no unrounded values could have led to both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from .results import BEIR, VIDORE, Cell, canonical, load, select

Mean = Literal["am", "gm"]
# Along the first axis: a lower bound, the value, an upper bound.
_Bounds = NDArray[np.float64]

# The paper's two forms of EigenLI have the same scores, and most of its tables print but one.
_SAME_SCORES = {"EigenLI-SV": "EigenLI"}
# With these encoders the paper's means are against MUVERA centered, otherwise uncentered.
_ANISOTROPIC = ("AnswerAI-ColBERT-small", "GTE-ModernColBERT")
_UNCOMPRESSED = ("Full MaxSim", "MUVERA")


@dataclass(frozen=True)
class Derived:
    """A number computed from those printed in ``tables``, and the range their rounding leaves."""

    value: float
    low: float
    high: float
    tables: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """A printed number beside the same number derived from others, None if that cannot be done."""

    printed: Cell
    derived: Derived | None

    @property
    def agrees(self) -> bool | None:
        """Whether rounding can explain the difference; None if there is nothing to compare."""
        if self.derived is None:
            return None
        # Just over half a unit, so that the bounds' own floating-point error decides nothing.
        room = self.printed.rounding + 1e-9
        return self.derived.low - room <= self.printed.value <= self.derived.high + room


def relative_improvement(
    *,
    model: str,
    baseline: str,
    metric: str,
    cutoff: int,
    mean: Mean,
    method: str = "EigenLI",
    k: int = 32,
) -> Derived:
    """Return the mean of ``method``'s ratios to ``baseline`` over the datasets, less 1, in percent.

    Both keep ``k`` vectors, if they keep a chosen number at all; the paper prints k=32 alone.

    Raises
    ------
    LookupError
        If the paper does not print both for every dataset.

    Examples
    --------
    >>> derived = relative_improvement(model="ColBERTv2", baseline="Ward", metric="nDCG",
    ...                                cutoff=10, mean="gm")
    >>> f"{derived.value:+.1f} %"
    '+7.6 %'
    """
    model, metric = canonical("model", model), canonical("metric", metric)
    method, baseline = canonical("method", method), canonical("method", baseline)
    centered = baseline == "MUVERA" and model in _ANISOTROPIC
    baseline_k = None if baseline in _UNCOMPRESSED else k
    ours = _over_datasets(model, method, k, False, metric, cutoff)
    theirs = _over_datasets(model, baseline, baseline_k, centered, metric, cutoff)
    # A ratio is least where its denominator is greatest.
    ratios = _bounds(ours) / _bounds(theirs)[::-1]
    return _derived(100 * (_MEANS[mean](ratios) - 1), ours + theirs)


def means() -> list[Comparison]:
    """Return every mean the paper prints, beside the same mean of the cells it prints."""
    comparisons = []
    for cell in load():
        if cell.statistic == "am" or cell.statistic == "gm":
            try:
                derived = _derive_mean(cell, cell.statistic)
            except LookupError:
                derived = None
            comparisons.append(Comparison(cell, derived))
    return comparisons


def differences() -> list[Comparison]:
    """Return every effect of centering the paper prints, beside the difference of its numbers."""
    numbers = {(_row(cell), cell.centered): cell for cell in load() if cell.statistic != "delta"}
    comparisons = []
    for cell in select(statistic="delta"):
        uncentered, centered = numbers[_row(cell), False], numbers[_row(cell), True]
        change = _bounds([centered]) - _bounds([uncentered])[::-1]
        comparisons.append(Comparison(cell, _derived(change[:, 0], [uncentered, centered])))
    return comparisons


def repeats() -> list[Comparison]:
    """Return every measurement the paper prints again, beside its first print."""
    first: dict[tuple[object, ...], Cell] = {}
    comparisons = []
    for cell in select(statistic="value"):
        method = _SAME_SCORES.get(cell.method, cell.method)
        run = (cell.model, cell.dataset, method, cell.k, cell.centered, cell.metric, cell.cutoff)
        before = first.setdefault(run, cell)
        if before is not cell:
            # One number rounded twice to as many decimals must come out the same.
            exact = Derived(before.value, before.value, before.value, (before.table,))
            comparisons.append(Comparison(cell, exact))
    return comparisons


def disagreements() -> list[Comparison]:
    """Return what the paper prints in two ways that rounding cannot reconcile.

    Examples
    --------
    >>> for found in disagreements():
    ...     cell = found.printed
    ...     print(cell.table, cell.dataset, cell.method, f"{cell.metric}@{cell.cutoff}", cell.text)
    ...     print(*found.derived.tables, found.derived.value)
    beir_ndcg Quora EigenLI nDCG@1000 0.8556
    sv_ndcg 0.8557
    """
    return [found for found in means() + differences() + repeats() if found.agrees is False]


def _derive_mean(printed: Cell, mean: Mean) -> Derived:
    if printed.model is None:
        # Every model has as many datasets, so the mean of their means is the mean over all.
        siblings = select(table=printed.table, method=printed.method, statistic=mean)
        cells = [cell for cell in siblings if cell.model is not None]
        return _derived(_MEANS[mean](_bounds(cells)), cells)
    if printed.bits is not None or printed.cutoff is None:
        raise LookupError("the paper prints no quantized run and no time on a single dataset")
    if printed.baseline is None:
        cells = _over_datasets(
            printed.model,
            printed.method,
            printed.k,
            bool(printed.centered),
            printed.metric,
            printed.cutoff,
        )
        return _derived(_MEANS[mean](_bounds(cells)), cells)
    return relative_improvement(
        model=printed.model,
        baseline=printed.baseline,
        metric=printed.metric,
        cutoff=printed.cutoff,
        mean=mean,
        method=printed.method,
        k=cast(int, printed.k),
    )


def _over_datasets(
    model: str, method: str, k: int | None, centered: bool, metric: str, cutoff: int
) -> list[Cell]:
    """Return the measurement on each dataset of the model's benchmark, in the benchmark's order."""
    datasets = VIDORE if model == "ColQwen3" else BEIR
    for name in (method, _SAME_SCORES.get(method, method)):
        found = _runs().get((model, name, k, centered, metric, cutoff), {})
        if len(found) == len(datasets):
            return [found[dataset] for dataset in datasets]
    raise LookupError(
        f"the paper does not have {metric}@{cutoff} of {method} with {model} on every dataset"
    )


@cache
def _runs() -> dict[tuple[object, ...], dict[str, Cell]]:
    """Return the measurements by all that defines them but the dataset, and then by dataset."""
    runs: dict[tuple[object, ...], dict[str, Cell]] = {}
    for cell in select(statistic="value"):
        run = (cell.model, cell.method, cell.k, cell.centered, cell.metric, cell.cutoff)
        runs.setdefault(run, {})[cell.dataset or ""] = cell
    return runs


def _row(cell: Cell) -> tuple[object, ...]:
    """Return what a difference and the two numbers it is of have in common."""
    return (cell.table, cell.model, cell.dataset, cell.method, cell.metric, cell.cutoff)


def _bounds(cells: Sequence[Cell]) -> _Bounds:
    """Return what the cells were before rounding, at least, as printed, and at most: (3, n)."""
    values = np.array([cell.value for cell in cells])
    rounding = np.array([cell.rounding for cell in cells])
    return np.stack([values - rounding, values, values + rounding])


def _derived(bounds: _Bounds, cells: Sequence[Cell]) -> Derived:
    low, value, high = bounds.tolist()
    return Derived(value, low, high, tuple(dict.fromkeys(cell.table for cell in cells)))


def _arithmetic_mean(bounds: _Bounds) -> _Bounds:
    return np.asarray(bounds.mean(axis=1))


def _geometric_mean(bounds: _Bounds) -> _Bounds:
    return np.asarray(np.exp(np.log(bounds).mean(axis=1)))


_MEANS: dict[Mean, Callable[[_Bounds], _Bounds]] = {"am": _arithmetic_mean, "gm": _geometric_mean}
