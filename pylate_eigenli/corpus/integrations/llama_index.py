"""A LlamaIndex retriever over a ``TextIndex``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from ...errors import require
from ..metadata import Where
from ..text_index import TextIndex
from .conversion import metadata_of, only_and, where_of

require("llama_index.core", "llama-index", "a LlamaIndex retriever")

from llama_index.core.base.base_retriever import BaseRetriever  # noqa: E402
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode  # noqa: E402
from llama_index.core.vector_stores import MetadataFilters  # noqa: E402


class EigenLIRetriever(BaseRetriever):
    """Finds the texts of an index, best first, as nodes with scores.

    Metadata of a node are those of its document, with ``title``, ``file`` and ``page`` if it has
    them.

    Parameters
    ----------
    index
        The texts, an open :class:`pylate_eigenli.TextIndex`.
    similarity_top_k
        Number of texts to return.
    filters
        LlamaIndex's filters, combined by "and", with the operators ==, in, >, >=, < and <=; or
        conditions as for :meth:`pylate_eigenli.TextIndex.search`.
    options
        Options of LlamaIndex's ``BaseRetriever``, such as ``callback_manager``.

    Examples
    --------
    >>> import tempfile
    >>> from pylate_eigenli import TextIndex
    >>> from pylate_eigenli.corpus.integrations.llama_index import EigenLIRetriever
    >>> index = TextIndex(tempfile.mkdtemp())
    >>> texts = ["Cats sleep most of the day.", "Bread needs flour, water and salt."]
    >>> _ = index.add(texts, metadata=[{"year": 2021}, {"year": 2024}])
    >>> (found,) = EigenLIRetriever(index, similarity_top_k=1).retrieve("How do I bake a loaf?")
    >>> found.node.text, found.node.metadata
    ('Bread needs flour, water and salt.', {'year': 2024})
    """

    def __init__(
        self,
        index: TextIndex,
        *,
        similarity_top_k: int = 10,
        filters: MetadataFilters | Where | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if similarity_top_k < 1:
            raise ValueError(f"similarity_top_k must be at least 1, got {similarity_top_k}")
        self._index = index
        self._top = similarity_top_k
        self._where = (
            where_of(_conditions(filters)) if isinstance(filters, MetadataFilters) else filters
        )

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self._index.search(query_bundle.query_str, self._top, self._where)
        return [
            NodeWithScore(
                node=TextNode(id_=str(hit.id), text=hit.text, metadata=metadata_of(hit)),
                score=float(hit.score),
            )
            for hit in hits
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _conditions(filters: MetadataFilters) -> Iterator[tuple[str, str, Any]]:
    """Yield the conditions of filters, also of nested ones."""
    if filters.condition is not None:
        only_and(filters.condition.value)
    for condition in filters.filters:
        if isinstance(condition, MetadataFilters):
            yield from _conditions(condition)
        else:
            yield condition.key, condition.operator.value, condition.value
