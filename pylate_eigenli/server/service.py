"""The server without HTTP: searches in batches, changes one after the other."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from ..corpus.document import Document
from ..corpus.hits import Answer, Hit
from ..corpus.metadata import Where, checked
from ..corpus.page_index import open_corpus
from .schemas import (
    MAX_TEXT,
    AnswerOut,
    ChangeResponse,
    DocumentIn,
    DocumentOut,
    HitOut,
    Info,
    SearchRequest,
    SearchResponse,
    Spectrum,
    SpectrumResponse,
)


class Service:
    """An index opened twice, once for searching and once for changing.

    The searching view moves to the newest generation only between batches, so each request is
    answered from one generation. Call :meth:`search`, :meth:`document` and :meth:`info` from one
    thread, :meth:`add` and :meth:`remove` from one other thread, and :meth:`spectra` from any.

    Parameters
    ----------
    path
        The folder of an index.
    model
        Name or path of a model; by default the one the index was made with.
    trust_index
        Whether to use a model or a database that only the folder names.

    Examples
    --------
    >>> import tempfile
    >>> from pylate_eigenli.corpus.text_index import TextIndex
    >>> folder = tempfile.mkdtemp()
    >>> with TextIndex(folder, k=2) as index:
    ...     index.add_documents([Document("apple", "Apples are red.")], [[[1.0, 0.0, 0.0]]])
    1
    >>> service = Service(folder)
    >>> service.add([DocumentIn(id="pear", text="Pears.", embeddings=[[0.0, 1.0, 0.0]])]).documents
    2
    >>> request = SearchRequest(queries_embeddings=[[[0.0, 1.0, 0.0]]], top=1)
    >>> service.search([request])[0].results[0].hits[0].snippet
    'Pears.'
    >>> service.close()
    """

    def __init__(
        self, path: str | Path, model: str | None = None, *, trust_index: bool = False
    ) -> None:
        self._writer = open_corpus(path, model, trust_index=trust_index)
        self._reader = self._writer.reopened()

    @property
    def model(self) -> str | None:
        """Name or path of the model; None if it is not known, so that texts cannot be searched."""
        return self._reader.model

    def warm_up(self) -> None:
        """Load the model, if there is one, and compile what searches need."""
        if self.model is not None:
            self._reader.warm_up()

    def close(self) -> None:
        """Close the files."""
        self._reader.close()
        self._writer.close()

    def search(self, requests: Sequence[SearchRequest]) -> list[SearchResponse]:
        """Answer requests, those with the same options in one search, from one generation."""
        self._reader.index.refresh()
        groups: dict[object, list[int]] = {}
        for i, request in enumerate(requests):
            options = (request.top, request.rerank, request.n_candidates, request.explain)
            where = json.dumps(request.where, sort_keys=True)
            groups.setdefault((*options, where, request.subset is None), []).append(i)
        responses: dict[int, SearchResponse] = {}
        for members in groups.values():
            together = [requests[i] for i in members]
            for i, response in zip(members, self._search_alike(together), strict=True):
                responses[i] = response
        return [responses[i] for i in range(len(requests))]

    def _search_alike(self, requests: list[SearchRequest]) -> list[SearchResponse]:
        first = requests[0]
        queries = [query for request in requests for query in request.all_queries]
        subset = None
        if first.subset is not None:
            subset = [r.subset or [] for r in requests for _ in r.all_queries]
        begin = time.perf_counter()
        answers = iter(
            self._reader.answers(
                queries,
                first.top,
                where=cast("Where | None", first.where),
                subset=subset,
                explain=first.explain,
                rerank=first.rerank,
                n_candidates=first.n_candidates,
            )
        )
        milliseconds = (time.perf_counter() - begin) * 1e3
        return [
            SearchResponse(
                results=_answers([next(answers) for _ in request.all_queries], request),
                method=self._method(first.rerank),
                milliseconds=round(milliseconds, 2),
                generation=self._reader.index.generation,
                documents=len(self._reader),
            )
            for request in requests
        ]

    def add(self, documents: Sequence[DocumentIn]) -> ChangeResponse:
        """Add or replace documents in one step."""
        self._writer.add_documents(
            [
                Document(d.id, d.text, d.title, metadata=checked(d.metadata, d.id))
                for d in documents
            ],
            [document.embeddings for document in documents],
        )
        return self._changed()

    def remove(self, documents_ids: Sequence[str | int]) -> ChangeResponse:
        """Remove documents in one step."""
        self._writer.remove(documents_ids)
        return self._changed()

    def document(self, name: str) -> DocumentOut:
        """Return a document by its id; digits stand for a number too, if no string is the same."""
        ids: list[str | int] = [name, *([int(name)] if _is_integer(name) else [])]
        self._reader.index.refresh()
        found = [*self._reader.known(ids).values()] or self._reader.get(ids)
        return DocumentOut(**DocumentOut.fields_of(found[0]))

    def _changed(self) -> ChangeResponse:
        return ChangeResponse(generation=self._writer.index.generation, documents=len(self._writer))

    def spectra(self, documents_ids: Sequence[str | int]) -> SpectrumResponse:
        """Return the spectra of those documents whose tokens are kept or can be encoded again."""
        spectra = self._reader.spectra(documents_ids)
        return SpectrumResponse(
            k=self._reader.index.settings.k,
            spectra=[Spectrum(id=i, eigenvalues=values.tolist()) for i, values in spectra.items()],
        )

    def info(self) -> Info:
        """Return what the index holds now and how it was made."""
        self._reader.index.refresh()
        about = self._reader.about()
        return Info(**about, method=self._method(None), maxsim=self._reader.keeps_tokens)

    def _method(self, rerank: str | None) -> str:
        index = self._reader.index
        kept = f"k={index.settings.k}, {index.settings.dtype}"
        backend = getattr(index.settings, "backend", None)
        if backend is None:
            return f"EigenLI, {kept}, exact search"
        how = "exact search" if backend == "exact" else backend
        method = f"EigenLI single vectors, {kept}, {how}"
        final = rerank or getattr(index, "rerank", "none")
        return method if final == "none" else f"{method}, re-ranked by {final}"


def _is_integer(name: str) -> bool:
    return name.isascii() and name.removeprefix("-").isdigit()


def _answers(answers: Sequence[Answer], request: SearchRequest) -> list[AnswerOut]:
    if request.include_text:
        length = sum(len(hit.text) for answer in answers for hit in answer.hits)
        if length > MAX_TEXT:
            raise ValueError(
                f"the texts of the hits have {length:,} characters, more than the {MAX_TEXT:,} of "
                "one answer: ask for fewer, or for one at a time with GET /documents/ID"
            )
    return [
        AnswerOut(tokens=a.tokens, hits=[_hit(hit, request.include_text) for hit in a.hits])
        for a in answers
    ]


def _hit(hit: Hit, include_text: bool) -> HitOut:
    return HitOut(
        **{**DocumentOut.fields_of(hit), "text": hit.text if include_text else None},
        score=hit.score,
        share=hit.share,
        snippet=hit.snippet,
        contributions=None if hit.contributions is None else hit.contributions.tolist(),
    )
