"""Parts that are chosen by name, each in a module of its own with a library of its own.

Modules and extras are named like the part. Both are imported when first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, NamedTuple

from ..errors import require


class Entry(NamedTuple):
    """The class of a part, and the library that it needs."""

    class_name: str
    library: str


@dataclass(frozen=True)
class Registry:
    """Parts of one kind.

    Parameters
    ----------
    package
        Full name of the package with their modules.
    noun
        What to call a part in errors; also the option that chooses one.
    entries
        The parts by name.
    """

    package: str
    noun: str
    entries: Mapping[str, Entry]

    def type_of(self, name: str) -> Any:
        """Return the class of a part; refuse an unknown name."""
        if name not in self.entries:
            names = ", ".join(self.entries)
            raise ValueError(f"{self.noun} must be one of {names}, got {name!r}")
        return getattr(import_module(f"{self.package}.{name}"), self.entries[name].class_name)

    def options(self, name: str, options: Mapping[str, Any] | None) -> Any:
        """Return options as the ``options_type`` of a part; refuse those that it does not have."""
        options_type = self.type_of(name).options_type
        known = [field.name for field in fields(options_type)]
        for option in options or {}:
            if option not in known:
                raise ValueError(
                    f"the {name} {self.noun} has no option {option!r}, only {', '.join(known)}"
                )
        return options_type(**(options or {}))

    def options_of_searches(self, name: str) -> frozenset[str]:
        """Return the options of a part that may be others each time it is opened."""
        names: frozenset[str] = self.type_of(name).options_type.of_searches
        return names

    def library(self, name: str) -> Any:
        """Return the library behind a part."""
        return require(self.entries[name].library, name, f"the {name} {self.noun}")

    def check(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        """Refuse an unknown part, one whose library is missing, and options it does not have."""
        self.options(name, options)
        self.library(name)


def check_positive(**options: int | None) -> None:
    """Refuse options that are neither None nor a positive integer."""
    for name, value in options.items():
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ValueError(f"{name} must be a positive integer, got {value!r}")
