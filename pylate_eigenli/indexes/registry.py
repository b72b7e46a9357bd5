"""Backends by name: ANN libraries and vector databases, each in a module of its own.

Modules and libraries are imported when first used. The extra has the name of the backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

from ..errors import require

ANN = {"faiss": "FaissBackend", "sketch": "SketchBackend", "voyager": "VoyagerBackend"}
DATABASES = {"milvus": "MilvusDatabase", "qdrant": "QdrantDatabase"}
"""The classes of backends, by name."""
BUILT_IN = frozenset({"exact", "sketch"})
"""Backends that need no library."""
_LIBRARIES = {"milvus": "pymilvus", "qdrant": "qdrant_client"}  # others are named as the backend


def type_of(name: str) -> Any:
    """Return the class of a backend."""
    package = "ann" if name in ANN else "databases"
    return getattr(import_module(f".{package}.{name}", __package__), {**ANN, **DATABASES}[name])


def options_of(name: str, options: Mapping[str, Any] | None) -> Any:
    """Return options as the ``options_type`` of a backend; raise an error for unknown ones."""
    options_type = type_of(name).options_type
    known = [field.name for field in fields(options_type)]
    for option in options or {}:
        if option not in known:
            raise ValueError(
                f"the {name} backend has no option {option!r}, only {', '.join(known)}"
            )
    return options_type(**(options or {}))


def library(name: str) -> Any:
    """Return the library behind a backend."""
    return require(_LIBRARIES.get(name, name), name, f"the {name} backend")
