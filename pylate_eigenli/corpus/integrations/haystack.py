"""A Haystack component over a ``TextIndex``.

Haystack sends statistics of pipelines to its makers unless HAYSTACK_TELEMETRY_ENABLED is false.
This module turns that off, unless the variable says otherwise: nothing leaves the machine that the
user has not asked for.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import require
from ..metadata import Where
from ..text_index import TextIndex
from .conversion import metadata_of, only_and, where_of

_is_asked_for = "HAYSTACK_TELEMETRY_ENABLED" in os.environ
os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")
require("haystack", "haystack", "a Haystack component")
if not _is_asked_for:  # a program may have imported Haystack before
    require("haystack.telemetry._telemetry", "haystack", "a Haystack component").telemetry = None

from haystack import Document, component, default_from_dict, default_to_dict  # noqa: E402


@component
class EigenLIRetriever:
    """Finds the texts of an index, best first.

    Metadata of a document are those it was added with, with ``title``, ``file`` and ``page`` if it
    has them. Haystack loads a stored pipeline only from modules that you allow:
    ``Pipeline.loads(text, allowed_modules=["pylate_eigenli.corpus.integrations.haystack"])``.

    Parameters
    ----------
    index
        The texts, an open :class:`pylate_eigenli.TextIndex`. A stored pipeline keeps its folder,
        which records the model.
    filters
        Haystack's filters, combined by AND, with the operators ==, in, >, >=, < and <=; or
        conditions as for :meth:`pylate_eigenli.TextIndex.search`.
    top_k
        Number of texts to return.

    Examples
    --------
    >>> import tempfile
    >>> from pylate_eigenli import TextIndex
    >>> from pylate_eigenli.corpus.integrations.haystack import EigenLIRetriever
    >>> index = TextIndex(tempfile.mkdtemp())
    >>> texts = ["Cats sleep most of the day.", "Bread needs flour, water and salt."]
    >>> _ = index.add(texts, metadata=[{"year": 2021}, {"year": 2024}])
    >>> retriever = EigenLIRetriever(index, top_k=1)
    >>> (document,) = retriever.run("How do I bake a loaf?")["documents"]
    >>> document.content, document.meta
    ('Bread needs flour, water and salt.', {'year': 2024})
    """

    def __init__(
        self, index: TextIndex, filters: dict[str, Any] | None = None, top_k: int = 10
    ) -> None:
        if top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {top_k}")
        _where_of(filters)  # wrong ones are refused when the pipeline is made
        self.index = index
        self.filters = filters
        self.top_k = top_k

    def to_dict(self) -> dict[str, Any]:
        """Return the component as JSON values."""
        return default_to_dict(
            self, index=str(self.index.path), filters=self.filters, top_k=self.top_k
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> EigenLIRetriever:
        """Return the component that :meth:`to_dict` has described."""
        options = data["init_parameters"]
        opened = {**options, "index": TextIndex(options["index"])}
        return default_from_dict(cls, {**data, "init_parameters": opened})

    def warm_up(self) -> None:
        """Load the model, so that the first query does not wait."""
        self.index.warm_up()

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the texts found for a query.

        Parameters
        ----------
        query
            The question.
        filters, top_k
            In place of those of the component.
        """
        hits = self.index.search(
            query,
            self.top_k if top_k is None else top_k,
            _where_of(self.filters if filters is None else filters),
        )
        return {
            "documents": [
                Document(
                    id=str(hit.id), content=hit.text, meta=metadata_of(hit), score=float(hit.score)
                )
                for hit in hits
            ]
        }

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the texts found for a query, as :meth:`run`, while other tasks go on."""
        return await asyncio.to_thread(self.run, query, filters, top_k)


def _where_of(filters: Mapping[str, Any] | None) -> Where | None:
    """Return filters as conditions of an index of texts, which they may be already."""
    if filters is None or "operator" not in filters:
        return filters
    return where_of(_conditions(filters))


def _conditions(filters: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the conditions of filters, also of nested ones."""
    if "conditions" in filters:
        only_and(filters["operator"])
        for condition in filters["conditions"]:
            yield from _conditions(condition)
    else:
        yield filters["field"].removeprefix("meta."), filters["operator"], filters["value"]
