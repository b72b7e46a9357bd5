"""A LangChain retriever over a ``TextIndex``."""

from __future__ import annotations

import asyncio
from typing import Any

from ...errors import require
from ..metadata import Where
from ..text_index import TextIndex
from .conversion import metadata_of

require("langchain_core", "langchain", "a LangChain retriever")

from langchain_core.documents import Document  # noqa: E402
from langchain_core.retrievers import BaseRetriever  # noqa: E402
from pydantic import Field  # noqa: E402


class EigenLIRetriever(BaseRetriever):
    """Finds the texts of an index, best first.

    Metadata of a text are those of its document, with ``score``, and ``title``, ``file`` and
    ``page`` if it has them.

    Parameters
    ----------
    index
        The texts, an open :class:`pylate_eigenli.TextIndex`.
    k
        Number of texts to return.
    where
        Conditions on metadata, as for :meth:`pylate_eigenli.TextIndex.search`. Both can be given
        with a question too: ``retriever.invoke("question", k=3, where={"lang": "en"})``.

    Examples
    --------
    >>> import tempfile
    >>> from pylate_eigenli import TextIndex
    >>> from pylate_eigenli.corpus.integrations.langchain import EigenLIRetriever
    >>> index = TextIndex(tempfile.mkdtemp())
    >>> texts = ["Cats sleep most of the day.", "Bread needs flour, water and salt."]
    >>> _ = index.add(texts, metadata=[{"year": 2021}, {"year": 2024}])
    >>> retriever = EigenLIRetriever(index=index, k=1)
    >>> (document,) = retriever.invoke("How do I bake a loaf?")
    >>> document.page_content, document.metadata["year"]
    ('Bread needs flour, water and salt.', 2024)
    """

    index: TextIndex
    k: int = Field(default=10, ge=1)
    where: dict[str, Any] | None = None

    def _get_relevant_documents(
        self, query: str, *, k: int | None = None, where: Where | None = None, **_: Any
    ) -> list[Document]:
        hits = self.index.search(
            query, self.k if k is None else k, self.where if where is None else where
        )
        return [
            Document(
                hit.text, id=str(hit.id), metadata={**metadata_of(hit), "score": float(hit.score)}
            )
            for hit in hits
        ]

    async def _aget_relevant_documents(self, query: str, **options: Any) -> list[Document]:
        return await asyncio.to_thread(self._get_relevant_documents, query, **options)
