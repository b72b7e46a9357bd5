"""Retrieval methods behind one interface, by name.

A name is a family, for most families the number k of vectors to keep per document, and options:
``full``, ``ward-32``, ``eigenli-sv-32:dtype=binary,rerank=maxsim``. To add a method, write its
module with a tuple ``FAMILIES`` and list it here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from . import indexes, pylate, scanned
from .base import Candidates, Family, Hits, Method, Spec

__all__ = ["FAMILIES", "Candidates", "Family", "Hits", "Method", "Spec", "expand", "parse"]

FAMILIES: dict[str, Family] = {
    family.name: family for module in (scanned, indexes, pylate) for family in module.FAMILIES
}


def parse(name: str) -> Spec:
    """Return the method of a name.

    Examples
    --------
    >>> spec = parse("eigenli-sv-16:dtype=binary,idf=0.25")
    >>> spec.family.name, spec.k, spec.options
    ('eigenli-sv', 16, {'dtype': 'binary', 'idf': 0.25})
    >>> parse("wart-8")
    Traceback (most recent call last):
        ...
    ValueError: unknown method 'wart-8': expected full, ward-<k>, kmeans-<k>, muvera, muvera-centered, eigenli-<k>, eigenli-sv-<k>, faiss-pq, plaid, warp, tachiom or voyager
    """
    plain, _, options = name.partition(":")
    family, k = _split(plain)
    if family not in FAMILIES or FAMILIES[family].budgeted != (k is not None):
        *known, last = [known.pattern for known in FAMILIES.values()]
        raise ValueError(f"unknown method {plain!r}: expected {', '.join(known)} or {last}")
    return Spec(name, FAMILIES[family], k, _options(FAMILIES[family], options))


def expand(names: Iterable[str], ks: Iterable[int]) -> list[str]:
    """Return names of methods, each once; a family that needs a k gets every one of ``ks``.

    Examples
    --------
    >>> expand(["full", "eigenli:preset=plus", "ward-4"], [8, 16])
    ['full', 'eigenli-8:preset=plus', 'eigenli-16:preset=plus', 'ward-4']
    """
    sizes, expanded = list(ks), []
    for name in names:
        plain, colon, options = name.partition(":")
        family = FAMILIES.get(plain)
        if family is not None and family.budgeted:
            expanded += [f"{plain}-{k}{colon}{options}" for k in sizes]
        else:
            expanded.append(name)
    for name in expanded:
        parse(name)
    return list(dict.fromkeys(expanded))


def _split(name: str) -> tuple[str, int | None]:
    budgeted = re.fullmatch(r"(.+)-([1-9][0-9]*)", name)
    return (budgeted[1], int(budgeted[2])) if budgeted else (name, None)


def _options(family: Family, text: str) -> dict[str, Any]:
    """Return options such as ``filter=soft,idf=0.25``."""
    found: dict[str, Any] = {}
    for option in filter(None, text.split(",")):
        name, _, value = option.partition("=")
        if name not in family.options:
            known = ", ".join(family.options) or "none"
            raise ValueError(f"{family.name} has no option {name!r}; its options: {known}")
        try:
            found[name] = family.options[name](value)
        except ValueError as error:
            raise ValueError(f"{family.name}: cannot read the option {option!r}") from error
    return found
