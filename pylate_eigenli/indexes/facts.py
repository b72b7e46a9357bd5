"""Facts about an index from its files. Nothing here needs torch, so that `eigenli info` is quick."""

from __future__ import annotations

from typing import Any

from ..storage import Snapshot
from .registry import DATABASES

AGREEMENT = "codes.agreement"
"""Name of the array with the agreement of codes and their vectors."""

_SINGLE_VECTORS = "eigenli-sv"
_KINDS = ("eigenli", _SINGLE_VECTORS)


def facts(state: Snapshot, documents: int, nbytes: int | None) -> dict[str, Any]:
    """Return what a state holds and how it was made, as JSON values."""
    meta, agreement = state.meta, state.collection.get(AGREEMENT)
    agreed = None if agreement is None else float(agreement[0])
    return {
        "kind": meta.get("kind"),
        "documents": documents,
        "dim": meta.get("dim"),
        "bytes": nbytes,
        "bytes_per_document": None if nbytes is None else round(nbytes / max(documents, 1)),
        **({"agreement": agreed} if meta.get("kind") == _SINGLE_VECTORS else {}),
        "settings": meta.get("settings"),
        "calibration": meta.get("calibration"),
        "generation": state.generation,
    }


def are_complete(state: Snapshot) -> bool:
    """Return whether the files say everything: they do not if a database holds the documents."""
    settings = state.meta.get("settings")
    return (
        state.meta.get("kind") in _KINDS
        and isinstance(settings, dict)
        and settings.get("backend") not in DATABASES
    )
