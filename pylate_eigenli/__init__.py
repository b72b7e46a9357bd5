"""EigenLI for PyLate: late-interaction retrieval with one small subspace per document."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .errors import IndexFormatError, IndexLockedError, UnknownDocumentError

if TYPE_CHECKING:
    from .analysis import analyze
    from .explanation import Explanation, explain, explain_found
    from .index import EigenLIIndex
    from .projection import SVProjection, TokenProjection
    from .rank import rerank
    from .scores import EigenLIScores, eigenli_kd_scores, eigenli_scores, eigenli_scores_pairwise
    from .subspace import compress
    from .sv_index import EigenLISVIndex
    from .tuning import tune

# Imported when first used: the command line must not wait for torch to print its help.
_MODULES = {
    "EigenLIIndex": "index",
    "EigenLISVIndex": "sv_index",
    "EigenLIScores": "scores",
    "Explanation": "explanation",
    "SVProjection": "projection",
    "TokenProjection": "projection",
    "analyze": "analysis",
    "compress": "subspace",
    "eigenli_kd_scores": "scores",
    "eigenli_scores": "scores",
    "eigenli_scores_pairwise": "scores",
    "explain": "explanation",
    "explain_found": "explanation",
    "rerank": "rank",
    "tune": "tuning",
}

__all__ = [
    "EigenLIIndex",
    "EigenLISVIndex",
    "EigenLIScores",
    "Explanation",
    "IndexFormatError",
    "IndexLockedError",
    "SVProjection",
    "TokenProjection",
    "UnknownDocumentError",
    "__version__",
    "analyze",
    "compress",
    "eigenli_kd_scores",
    "eigenli_scores",
    "eigenli_scores_pairwise",
    "explain",
    "explain_found",
    "rerank",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
