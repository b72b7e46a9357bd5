"""EigenLI for PyLate: late-interaction retrieval with one small subspace per document."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import IndexFormatError, IndexLockedError, UnknownDocumentError

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .evaluation.tuning import tune
    from .indexes.eigenli import EigenLIIndex
    from .indexes.single_vector import EigenLISVIndex
    from .scores.explanation import Explanation, explain, explain_found
    from .scores.rank import rerank
    from .scores.scores import (
        EigenLIScores,
        eigenli_kd_scores,
        eigenli_scores,
        eigenli_scores_pairwise,
    )
    from .spectral.analysis import analyze
    from .spectral.subspace import compress
    from .vectors.projection import SVProjection, TokenProjection

# Imported when first used: the command line must not wait for torch to print its help.
_MODULES = {
    "EigenLIIndex": "indexes.eigenli",
    "EigenLISVIndex": "indexes.single_vector",
    "EigenLIScores": "scores.scores",
    "Explanation": "scores.explanation",
    "SVProjection": "vectors.projection",
    "TokenProjection": "vectors.projection",
    "analyze": "spectral.analysis",
    "compress": "spectral.subspace",
    "eigenli_kd_scores": "scores.scores",
    "eigenli_scores": "scores.scores",
    "eigenli_scores_pairwise": "scores.scores",
    "explain": "scores.explanation",
    "explain_found": "scores.explanation",
    "rerank": "scores.rank",
    "tune": "evaluation.tuning",
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
