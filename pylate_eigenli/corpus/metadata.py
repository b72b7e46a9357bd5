"""Metadata of documents: values by name, kept in SQLite and filtered there.

A document has a row for each of its values. An index over the values finds the documents of a
filter without reading texts. SQLite tells integers, floats and strings apart; booleans are stored as
bytes, so that ``True`` is not 1.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

Value: TypeAlias = str | int | float | bool
Where: TypeAlias = Mapping[str, Value | Sequence[Value] | Mapping[str, Value]]
"""Conditions by name: a value, a list of values of which any will do, or bounds by operator."""

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS metadata (id TEXT NOT NULL, since INTEGER NOT NULL, "
    "key TEXT NOT NULL, value NOT NULL, PRIMARY KEY (id, since, key)) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS metadata_values ON metadata (key, value)",
    "CREATE TRIGGER IF NOT EXISTS metadata_follows AFTER DELETE ON texts BEGIN "
    "DELETE FROM metadata WHERE id = old.id AND since = old.since; END",
)
NOTHING = "CREATE TEMP TABLE metadata (id TEXT, since INTEGER, key TEXT, value)"
"""Stands in for the table in a catalogue of format 3, which had no metadata."""

_OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
# The newest version of a document counts, of those that the generation has.
_MATCHING = (
    "SELECT id FROM metadata AS held WHERE key = ? AND {condition} AND since <= ? AND NOT EXISTS ("
    "SELECT 1 FROM texts WHERE texts.id = held.id AND texts.since > held.since "
    "AND texts.since <= ?)"
)
_AT_ONCE = 10_000  # values in a statement: SQLite takes 32,766
_NAMED = 20  # keys that an error names
_WRITTEN = re.compile("([^<>=]+)(<=|>=|<|>|=)(.*)", re.DOTALL)


def checked(metadata: object, owner: object) -> dict[str, Value]:
    """Return the metadata of a document without its None; raise an error that names a bad value.

    Examples
    --------
    >>> checked({"lang": "en", "year": 2024, "note": None}, "apple")
    {'lang': 'en', 'year': 2024}
    """
    if not isinstance(metadata, Mapping):
        raise TypeError(
            f"the metadata of document {owner!r} must be a dictionary, got a "
            f"{type(metadata).__name__}"
        )
    for key, value in metadata.items():
        if not isinstance(key, str) or not key:
            raise TypeError(f"the metadata of document {owner!r} has the key {key!r}, not a name")
        if value is not None:
            _check(value, f"the metadata {key!r} of document {owner!r}")
    return {key: value for key, value in metadata.items() if value is not None}


def parse_where(conditions: Iterable[str]) -> Where:
    """Return conditions that are written as in a command or a web address.

    A number stands for the number and, after ``=``, for the text too.

    Examples
    --------
    >>> parse_where(["lang=en", "lang=de", "year>=2020", "year<2024"])
    {'lang': ['en', 'de'], 'year': {'gte': 2020, 'lt': 2024}}
    >>> parse_where(["year=2024"])
    {'year': ['2024', 2024]}
    """
    where: dict[str, Any] = {}
    for condition in conditions:
        written = _WRITTEN.fullmatch(condition)
        if written is None:
            raise ValueError(
                f"a condition is like KEY=VALUE or KEY>=VALUE (which a shell needs in quotes), got "
                f"{condition!r}"
            )
        name, operator, text = written.groups()
        values: list[Any] = [text]
        with suppress(ValueError):
            number = json.loads(text)
            is_number = isinstance(number, (int, float)) and -(2**63) <= number < 2**63
            values += [number] if is_number else []
        bound = next((key for key, sign in _OPERATORS.items() if sign == operator), None)
        known = where.setdefault(name, [] if bound is None else {})
        if isinstance(known, list) and bound is None:
            known += values
        elif isinstance(known, dict) and bound is not None and bound not in known:
            known[bound] = values[-1]
        else:
            raise ValueError(f"{condition!r} and another condition on {name!r} cannot be combined")
    return where


def write(
    connection: sqlite3.Connection, since: int, rows: Iterable[tuple[str, Mapping[str, Value]]]
) -> None:
    """Write the metadata of documents of a generation, given by their keys in the catalogue."""
    for key, metadata in rows:
        connection.execute("DELETE FROM metadata WHERE id = ? AND since = ?", (key, since))
        connection.executemany(
            "INSERT INTO metadata VALUES (?, ?, ?, ?)",
            [(key, since, name, _stored(value)) for name, value in metadata.items()],
        )


def read(connection: sqlite3.Connection, key: str, since: int) -> dict[str, Value]:
    """Return the metadata of one version of a document."""
    rows = connection.execute(
        "SELECT key, value FROM metadata WHERE id = ? AND since = ? ORDER BY key", (key, since)
    )
    values = {name: value == b"true" if isinstance(value, bytes) else value for name, value in rows}
    if not all(isinstance(name, str) and value is not None for name, value in values.items()):
        raise sqlite3.DataError(f"the metadata of document {key} has values of other types")
    return values


def matching(connection: sqlite3.Connection, where: Where, generation: int) -> set[str]:
    """Return the keys of the documents of a generation that fulfil all conditions."""
    if not isinstance(where, Mapping):
        raise TypeError(f'where must be a dictionary such as {{"lang": "en"}}, got {where!r}')
    found: set[str] | None = None
    for name, wanted in where.items():
        keys: set[str] = set()
        for condition, values in _conditions(name, wanted):
            statement = _MATCHING.format(condition=condition)
            rows = connection.execute(statement, (name, *values, generation, generation))
            keys.update(key for (key,) in rows)
        if not keys:
            _check_known(connection, name)
        found = keys if found is None else found & keys
    return found or set()


def _check_known(connection: sqlite3.Connection, name: str) -> None:
    rows = connection.execute("SELECT DISTINCT key FROM metadata ORDER BY key")
    known = [key for (key,) in rows]
    if not known:
        raise ValueError(f"where names {name!r}, but no document of the index has metadata")
    if name not in known:
        more = ", ..." if len(known) > _NAMED else ""
        raise ValueError(
            f"no document has the metadata {name!r}; known are {', '.join(known[:_NAMED])}{more}"
        )


def _conditions(name: str, wanted: object) -> list[tuple[str, list[object]]]:
    """Return the SQL of conditions, of which any will do, with their values."""
    if isinstance(wanted, Mapping):
        if not wanted or not wanted.keys() <= _OPERATORS.keys():
            raise ValueError(
                f"the bounds of {name!r} must be some of {', '.join(_OPERATORS)}, got "
                f"{', '.join(map(repr, wanted)) or 'none'}"
            )
        for bound in wanted.values():
            _check(bound, f"the bound of {name!r}")
            if isinstance(bound, bool):
                raise TypeError(f"the bound of {name!r} must be a number or a string, got {bound}")
        # SQLite orders all strings after all numbers: a bound compares only values of its kind.
        parts = [
            f"value {_OPERATORS[operator]} ? AND typeof(value) "
            + ("= 'text'" if isinstance(bound, str) else "IN ('integer', 'real')")
            for operator, bound in wanted.items()
        ]
        return [(" AND ".join(parts), list(wanted.values()))]
    several = list(wanted) if isinstance(wanted, (list, tuple, set, frozenset)) else [wanted]
    for value in several:
        _check(value, f"the condition on {name!r}")
    values = [_stored(value) for value in several]
    parts_of_values = [values[i : i + _AT_ONCE] for i in range(0, len(values), _AT_ONCE)]
    return [(f"value IN ({', '.join('?' * len(part))})", part) for part in parts_of_values]


def _check(value: object, what: str) -> None:
    if not isinstance(value, (str, int, float)):
        raise TypeError(
            f"{what} must be a string, a number or a boolean, got a {type(value).__name__}"
        )
    if isinstance(value, float) and math.isnan(value):
        raise ValueError(f"{what} is not a number")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{what} has more than 64 bits; write it as a string")


def _stored(value: Value) -> object:
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return value
