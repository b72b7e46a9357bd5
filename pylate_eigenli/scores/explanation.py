"""Explain a score: the contribution of every query token.

A score is a sum over the query tokens. The contribution of a token therefore equals the score of a
query that holds only this token, and the same functions that compute scores compute contributions:
:meth:`Subspaces.contributions <pylate_eigenli.spectral.subspace.Subspaces.contributions>` for token
embeddings, the search of an index for its documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ..spectral.filters import SpectralFilter
from ..spectral.settings import Centering, SpectralSettings, with_preset
from ..spectral.subspace import ShortDocuments
from ..tokens import collect
from ..vectors.encoder import SubspaceEncoder


@dataclass(frozen=True)
class Explanation:
    """The contributions of query tokens to a score.

    Parameters
    ----------
    contributions
        Contribution of each query token. Shape: (query tokens,), float32.
    eigenvalues
        Non-zero eigenvalues of the document's second moment, descending; None for a document of
        an index. Shape: (rank,), float32.

    Examples
    --------
    >>> Explanation(np.array([0.5, 0.25], np.float32)).total
    0.75
    """

    contributions: NDArray[np.float32]
    eigenvalues: NDArray[np.float32] | None = None

    @property
    def total(self) -> float:
        """The score."""
        return float(self.contributions.sum(dtype=np.float64))


def explain(
    query_embeddings: Any, document: Any, *, index: Any = None, **options: Any
) -> Explanation:
    """Explain the score of a query and a document, token by token.

    Parameters
    ----------
    query_embeddings
        Shape: (query tokens, d).
    document
        Token embeddings of the document, shape (tokens, d); or its id, if ``index`` is given.
    index
        An index that holds the document. The explanation is of the score of this index.
    options
        Without an index its settings: ``k``, ``short_documents``, ``filter``, ``centering`` and
        ``corpus_mean``. With an index the options of the search: ``idf``, ``background`` and, for
        :class:`pylate_eigenli.EigenLISVIndex`, ``rerank``.

    Examples
    --------
    >>> document = [[1.0, 0.0, 0.0, 0.0], [0.8, 0.6, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    >>> query = [[0.0, 1.0, 0.0, 0.0], [0.6, 0.0, 0.8, 0.0], [0.0, 0.0, 0.0, 1.0]]
    >>> explain(query, document, k=2).contributions.round(2)
    array([1.  , 0.36, 0.  ], dtype=float32)

    >>> import tempfile
    >>> from pylate_eigenli import EigenLIIndex
    >>> index = EigenLIIndex(
    ...     tempfile.mkdtemp(), k=2, preset="paper", show_progress=False
    ... )
    >>> index = index.add_documents(["a"], [document])
    >>> explain(query, "a", index=index).contributions.round(2)
    array([1.  , 0.36, 0.  ], dtype=float32)
    """
    if index is None:
        return _explain_embeddings(query_embeddings, document, **options)
    return explain_found(index, query_embeddings, [document], **options)[0]


def _explain_embeddings(
    query_embeddings: Any,
    document_embeddings: Any,
    k: int = 32,
    *,
    short_documents: ShortDocuments = "fill",
    filter: str | SpectralFilter = "hard",
    centering: Centering = "none",
    corpus_mean: ArrayLike | None = None,
) -> Explanation:
    """Explain the score that an index with these settings gives a document."""
    given = with_preset(None, filter, centering=centering, corpus_mean=corpus_mean)
    settings = SpectralSettings(k=k, short_documents=short_documents, **given)
    document = collect([document_embeddings], device="cpu")
    query = collect([query_embeddings], dim=document.dim, device="cpu", names="query")
    encoder = SubspaceEncoder.of(settings)
    tokens = encoder.transforms.queries(query).tokens
    (contributions,) = encoder.subspaces(document).contributions(tokens).numpy()
    return Explanation(contributions, spectrum(document.tokens))


def explain_found(
    index: Any,
    query_embeddings: Any,
    documents_ids: Sequence[str | int],
    **search_options: Any,
) -> list[Explanation]:
    """Explain the scores that an index gives several documents for one query.

    ``search_options`` are those of the search, as for :func:`explain`. There are no eigenvalues.
    """
    rows = index.contributions(query_embeddings, list(documents_ids), **search_options)
    return [Explanation(row) for row in rows]


def spectrum(document_embeddings: Any) -> NDArray[np.float32]:
    """Return the non-zero eigenvalues of the second moment of tokens (n, d), descending.

    The eigenvalues of unit tokens add up to the number of tokens.
    """
    tokens = collect([document_embeddings], dtype=torch.float64, device="cpu").tokens
    values = torch.linalg.svdvals(tokens).square().float().numpy()
    return np.asarray(values[values > 1e-6 * values[0]])
