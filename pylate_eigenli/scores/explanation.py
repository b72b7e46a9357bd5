"""Why a document was found: what every token of the query contributes to its score.

A score is a sum over the query's tokens: of token q_i it counts what lies in the document's
subspace, |P q_i|^2, with whatever weights, floor, idf and background the index has. So the
contribution of a token is the score of the query that consists of this token alone, and that is how
it is computed here: by the very functions that compute scores, for any index and re-ranking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import UnknownDocumentError
from ..indexes.base import DocumentIndex
from ..spectral.filters import SpectralFilter, as_filter
from ..spectral.subspace import ShortDocuments
from ..storage import DocumentId
from ..tokens import TokenBatch, collect
from ..vectors.encoder import Projections, SVSettings
from ..vectors.packing import pack_moments


@dataclass(frozen=True)
class Explanation:
    """A score, token by token.

    Parameters
    ----------
    contributions
        What each token of the query adds to the score. Shape: (query tokens,), float32.
    eigenvalues
        The document's spectrum: all eigenvalues of its second moment that are not zero,
        descending, or None where its tokens are not at hand. Shape: (rank,), float32.

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
    query_embeddings: Any,
    document_embeddings: Any,
    k: int = 32,
    *,
    short_documents: ShortDocuments = "fill",
    filter: str | SpectralFilter = "hard",
) -> Explanation:
    """Explain the score of a query and a document given as token embeddings.

    Parameters
    ----------
    query_embeddings
        Shape: (query tokens, d).
    document_embeddings
        Shape: (tokens, d).
    k, short_documents, filter
        As for :class:`pylate_eigenli.EigenLIIndex`.

    Examples
    --------
    >>> document = [[1.0, 0.0, 0.0, 0.0], [0.8, 0.6, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    >>> query = [[0.0, 1.0, 0.0, 0.0], [0.6, 0.0, 0.8, 0.0], [0.0, 0.0, 0.0, 1.0]]
    >>> explanation = explain(query, document, k=2)
    >>> explanation.contributions.round(2)
    array([1.  , 0.36, 0.  ], dtype=float32)
    >>> explanation.eigenvalues.round(2)
    array([2., 1.], dtype=float32)
    """
    document = collect([document_embeddings], device="cpu")
    query = collect([query_embeddings], dim=document.dim, device="cpu", names="query").tokens
    alone = TokenBatch(query, np.arange(len(query) + 1, dtype=np.int64))
    settings = SVSettings(k=k, short_documents=short_documents, filter=str(as_filter(filter)))
    vector = Projections().packed(document, settings)[0]
    return Explanation((pack_moments(alone) @ vector).numpy(), spectrum(document.tokens))


def explain_found(
    index: DocumentIndex[Any],
    query_embeddings: Any,
    documents_ids: Sequence[DocumentId],
    **search_options: Any,
) -> list[Explanation]:
    """Explain the scores that an index gives documents for a query.

    Parameters
    ----------
    index
        The index.
    query_embeddings
        Shape: (query tokens, d).
    documents_ids
        The documents, for instance those found.
    search_options
        What the index was searched with: ``idf``, ``background`` and, where it knows them,
        ``rerank`` and ``n_candidates``.

    Returns
    -------
    For each document an explanation without a spectrum. Totals are the scores of the index.

    Examples
    --------
    >>> import tempfile
    >>> from pylate_eigenli import EigenLIIndex
    >>> index = EigenLIIndex(tempfile.mkdtemp(), k=2, show_progress=False)
    >>> documents = torch.eye(8).reshape(2, 4, 8)
    >>> index = index.add_documents(["first", "second"], documents)
    >>> query = documents[1][:2]
    >>> found = index(query, k=1)[0]
    >>> (explanation,) = explain_found(index, query, [hit["id"] for hit in found])
    >>> round(explanation.total - found[0]["score"], 5)
    0.0
    """
    ids = list(documents_ids)
    if not ids:
        return []
    unknown = [document_id for document_id in ids if document_id not in index]
    if unknown:
        raise UnknownDocumentError(f"no document {unknown[0]!r} in the index")
    query = collect([query_embeddings], dim=index.dim, device="cpu", names="query")
    alone, copies = query.tokens[:, None], 1
    rerank = search_options.get("rerank") or getattr(index, "rerank", "none")
    if index.settings.centering == "both" and rerank != "maxsim":
        # Alone, a token is its own mean, and nothing is left of it. With its opposite beside it,
        # it stays what it is among the others.
        centred = query.centred().tokens
        alone, copies = torch.stack([centred, -centred], dim=1), 2
    contributions = np.zeros((len(ids), len(alone)), np.float32)
    row_of = {document_id: row for row, document_id in enumerate(ids)}
    tokens = torch.nonzero(alone.any(dim=(1, 2)))[:, 0].tolist()
    if tokens:
        answers = index(alone[tokens], k=len(ids), subset=ids, **search_options)
        for token, hits in zip(tokens, answers, strict=True):
            for hit in hits:
                contributions[row_of[hit["id"]], token] = hit["score"] / copies
    return [Explanation(row) for row in contributions]


def spectrum(document_embeddings: Any) -> NDArray[np.float32]:
    """Return the eigenvalues of a document's second moment that are not zero, descending.

    Parameters
    ----------
    document_embeddings
        Shape: (tokens, d).

    Returns
    -------
    Shape: (rank,), float32. For unit tokens their sum is the number of tokens.
    """
    tokens = collect([document_embeddings], dtype=torch.float64, device="cpu").tokens
    values = torch.linalg.svdvals(tokens).square().float().numpy()
    return np.asarray(values[values > 1e-6 * values[0]])
