"""What the frameworks share: hits to metadata, and their filters to conditions of ``TextIndex``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..hits import Hit
from ..metadata import Where

_BOUNDS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_OPERATORS = ("==", "in", *_BOUNDS)


def metadata_of(hit: Hit) -> dict[str, Any]:
    """Return the metadata of a hit, with its title, file and page if it has them.

    Examples
    --------
    >>> metadata_of(Hit("a.pdf#7", 1.5, "Apples are red.", "Fruit", metadata={"lang": "en"}))
    {'title': 'Fruit', 'lang': 'en'}
    """
    own = {"title": hit.title or None, "file": hit.file, "page": hit.page}
    return {name: value for name, value in own.items() if value is not None} | dict(hit.metadata)


def where_of(conditions: Iterable[tuple[str, str, Any]]) -> Where:
    """Return the conditions of a framework, all of which must hold, as ``TextIndex`` takes them.

    Parameters
    ----------
    conditions
        The name of a value, an operator and what the value is compared with, each.

    Examples
    --------
    >>> where_of([("lang", "in", ["en", "de"]), ("year", ">=", 2020), ("year", "<", 2024)])
    {'lang': ['en', 'de'], 'year': {'gte': 2020, 'lt': 2024}}
    """
    where: dict[str, Any] = {}
    for name, operator, wanted in conditions:
        if operator not in _OPERATORS:
            raise ValueError(
                f"the filter on {name!r} has the operator {operator!r}; "
                f"an index of texts knows {', '.join(_OPERATORS)}"
            )
        if operator == "in" and not isinstance(wanted, (list, tuple, set)):
            raise TypeError(f"the filter on {name!r} needs a list after 'in', got {wanted!r}")
        is_bound = operator in _BOUNDS
        known = where.setdefault(name, {} if is_bound else wanted)
        if is_bound and isinstance(known, dict) and _BOUNDS[operator] not in known:
            known[_BOUNDS[operator]] = wanted
        elif is_bound or known is not wanted:
            raise ValueError(f"the filters have two conditions on {name!r} that cannot be combined")
    return where


def only_and(operator: str) -> None:
    """Raise an error if filters are combined in another way than by "and"."""
    if operator.lower() != "and":
        raise ValueError(
            f"filters are combined by {operator!r}; an index of texts knows only 'and' "
            "(for one value out of several, use the operator 'in')"
        )
