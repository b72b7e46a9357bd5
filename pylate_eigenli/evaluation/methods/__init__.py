"""Retrieval methods behind one interface, by name.

A name is a family, for most families the number k of vectors to keep per document, and options:
``full``, ``ward-32``, ``eigenli-sv-32:dtype=binary,rerank=maxsim``. To add a method, write its
module with a tuple ``FAMILIES`` and list it here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from . import indexes, pylate, scanned, single_vectors
from .base import Candidates, Family, Hits, Method, Spec

__all__ = ["FAMILIES", "Candidates", "Family", "Hits", "Method", "Spec", "expand", "parse"]

FAMILIES: dict[str, Family] = {
    family.name: family
    for module in (scanned, single_vectors, indexes, pylate)
    for family in module.FAMILIES
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
    ValueError: unknown method 'wart-8': expected full, numkong, ward-<k>, kmeans-<k>, muvera, muvera-centered, lemur, lemur-elm, eigenli-<k>, eigenli-sv-<k>, faiss-pq, plaid, warp, tachiom or voyager
    """
    plain, _, options = name.partition(":")
    budgeted = re.fullmatch(r"(.+)-([1-9][0-9]*)", plain)
    family, k = (budgeted[1], int(budgeted[2])) if budgeted else (plain, None)
    if family not in FAMILIES or FAMILIES[family].budgeted != (k is not None):
        *known, last = [known.pattern for known in FAMILIES.values()]
        raise ValueError(f"unknown method {plain!r}: expected {', '.join(known)} or {last}")
    given = (option.partition("=") for option in options.split(",") if option)
    return Spec(name, FAMILIES[family], k, {option: _value(text) for option, _, text in given})


def expand(names: Iterable[str], ks: Iterable[int]) -> list[str]:
    """Return names of methods, checked, each once; a family that needs a k gets each of ``ks``.

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
        parse(name).check()
    return list(dict.fromkeys(expanded))


def _value(text: str) -> Any:
    """Return a number, true or false as such, and any other text as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text
