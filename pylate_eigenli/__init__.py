"""EigenLI for PyLate: late-interaction retrieval with one small subspace per document."""

from __future__ import annotations

from ._version import __version__
from .errors import IndexFormatError, IndexLockedError, UnknownDocumentError
from .index import EigenLIIndex
from .rank import rerank
from .scores import EigenLIScores, eigenli_kd_scores, eigenli_scores, eigenli_scores_pairwise
from .subspace import compress

__all__ = [
    "EigenLIIndex",
    "EigenLIScores",
    "IndexFormatError",
    "IndexLockedError",
    "UnknownDocumentError",
    "__version__",
    "compress",
    "eigenli_kd_scores",
    "eigenli_scores",
    "eigenli_scores_pairwise",
    "rerank",
]
