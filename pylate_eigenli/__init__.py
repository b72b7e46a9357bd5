"""EigenLI: late-interaction retrieval with one subspace or one vector per document.

It works with the models of PyLate and of sentence-transformers 6, whichever is installed.

The folders follow the data, from token embeddings to search results:

``tokens``
    The border: any form of embeddings becomes a ``TokenBatch``. All input checks are here.
``spectral/``
    Tokens to second moments to subspaces. A new spectral filter goes into ``filters``, a new
    preset into ``settings``; ``background`` has idf and background subtraction, ``kernels/`` the
    compiled eigensolver.
``vectors/``
    Subspaces to one vector to few bits: ``packing`` (the quadratic kernel), ``projection``,
    ``encoder``, ``quantization`` (codes of 8, 4, 2 and 1 bits and their scan).
``storage/``
    Crash-safe files of named columns. It knows documents and arrays, not eigenvectors.
``scores/``
    Scores without an index: ``maxsim``, ``rank``, ``explanation``, ``training``,
    ``token_pooling``; ``interface`` has the base class of PyLate's indexes, with and without PyLate.
``indexes/``
    ``eigenli`` (subspaces), ``single_vector`` (one vector per document), ``open_index``,
    ``conversion`` of one index to another, ``export`` to files and ``query_encoder`` to search them;
    ``calibration`` chooses the settings of a new index, ``columns`` names the stored columns. A new
    ANN library is a module of ``ann/``, a new vector database a module of ``databases/``; both are
    named in ``registry``.
``models/``
    Texts and page images to token embeddings; ``text_models`` adapts PyLate and
    sentence-transformers 6.
``corpus/``
    Files to texts and pages, and the indexes that keep them: ``text_index``, ``page_index``. A new
    format of texts goes into ``readers``, one of records into ``records``.
    ``integrations/`` has the retrievers for LangChain, LlamaIndex and Haystack.
``evaluation/``
    Methods, metrics, experiments and ``tuning``; ``baselines/``, and the results of the ``paper/``.
``server/``, ``cli/``
    The HTTP server and the command line.
``errors``
    Errors that a caller may catch, and checks of arguments.

``tests/test_layers.py`` lists the folders that each folder may import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import IndexFormatError, IndexLockedError, UnknownDocumentError, UploadError

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .corpus.text_index import TextIndex
    from .evaluation.tuning import tune
    from .indexes.eigenli import EigenLIIndex
    from .indexes.open_index import open_index
    from .indexes.single_vector import EigenLISVIndex
    from .scores.explanation import explain
    from .scores.rank import rerank
    from .scores.training import EigenLIScores
    from .spectral.analysis import analyze
    from .spectral.subspace import compress
    from .vectors.projection import SVProjection, TokenProjection

# A name is imported on first use, so that the command line prints its help without loading torch.
_MODULES = {
    "EigenLIIndex": "indexes.eigenli",
    "EigenLISVIndex": "indexes.single_vector",
    "EigenLIScores": "scores.training",
    "SVProjection": "vectors.projection",
    "TextIndex": "corpus.text_index",
    "TokenProjection": "vectors.projection",
    "analyze": "spectral.analysis",
    "compress": "spectral.subspace",
    "explain": "scores.explanation",
    "open_index": "indexes.open_index",
    "rerank": "scores.rank",
    "tune": "evaluation.tuning",
}

__all__ = [
    "EigenLIIndex",
    "EigenLISVIndex",
    "EigenLIScores",
    "IndexFormatError",
    "IndexLockedError",
    "SVProjection",
    "TextIndex",
    "TokenProjection",
    "UnknownDocumentError",
    "UploadError",
    "__version__",
    "analyze",
    "compress",
    "explain",
    "open_index",
    "rerank",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
