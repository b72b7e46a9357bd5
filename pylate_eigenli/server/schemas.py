"""Requests and answers of the API, with their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from typing_extensions import Self

from ..corpus.metadata import parse_where

if TYPE_CHECKING:
    from ..corpus.document import Document
    from ..corpus.hits import Hit

MAX_QUERIES = 64
MAX_RESULTS = 1000
MAX_DOCUMENTS = 1000
MAX_SUBSET = 100_000
MAX_TOKENS = 10_000
# Of all queries of a request together.
MAX_HITS = 10_000
MAX_CANDIDATES = 100_000
MAX_QUERY_TOKENS = 4096
MAX_CONTRIBUTIONS = 100_000
MAX_TEXT = 32 << 20
"""Characters of all texts of an answer."""
MAX_METADATA = 100
"""Values of a document, and conditions of a search."""
_TEXT_TOKENS = 512  # of a text, at most: models cut longer queries

DocumentId = (
    Annotated[StrictStr, Field(min_length=1, max_length=1000)]
    | Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
)
Value = StrictBool | StrictInt | StrictFloat | Annotated[StrictStr, Field(max_length=10_000)]
Name = Annotated[str, Field(min_length=1, max_length=1000)]
ItemT = TypeVar("ItemT")
# A list with many bad items is refused for the first: there may be millions.
Items = Annotated[list[ItemT], Field(fail_fast=True)]


def _said(query: str) -> str:
    if not query.strip():
        raise ValueError("the query is empty")
    return query


QueryText = Annotated[str, Field(min_length=1, max_length=10_000), AfterValidator(_said)]


def _in_one_line(condition: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Say what a condition may be, not what is wrong with it as each of the kinds."""
    try:
        return check(condition)
    except ValidationError:
        raise ValueError(
            "give a value, a list of 1 to 1,000 values, or bounds by gt, gte, lt and lte"
        ) from None


Condition = Annotated[
    Value
    | Annotated[Items[Value], Field(min_length=1, max_length=1000)]
    | Annotated[dict[Literal["gt", "gte", "lt", "lte"], Value], Field(min_length=1, max_length=4)],
    WrapValidator(_in_one_line),
]
Top = Annotated[
    int, Field(ge=1, le=MAX_RESULTS, description="Documents to return per query, at most.")
]
IncludeText = Annotated[bool, Field(description="Return whole texts, not only snippets.")]


def _compact(tokens: list[list[float]]) -> Any:
    """Return tokens as a matrix, a tenth of their size as lists."""
    if len({len(token) for token in tokens}) > 1:
        raise ValueError("its tokens have different dimensions")
    return np.asarray(tokens, np.float32)


Tokens = Annotated[
    Items[Items[float]],
    Field(min_length=1, max_length=MAX_TOKENS),
    AfterValidator(_compact),
]


class _Strict(BaseModel):
    # A misspelt option must not be ignored.
    model_config = ConfigDict(extra="forbid")


class SearchRequest(_Strict):
    """Queries as texts or as PyLate's token embeddings."""

    queries: Items[QueryText] | None = Field(None, min_length=1, max_length=MAX_QUERIES)
    queries_embeddings: Items[Tokens] | None = Field(None, min_length=1, max_length=MAX_QUERIES)
    top: Top = 10
    subset: Items[DocumentId] | None = Field(
        None, max_length=MAX_SUBSET, description="Documents to choose from."
    )
    where: dict[Name, Condition] | None = Field(
        None,
        max_length=MAX_METADATA,
        description="Conditions on metadata, all of which must hold: a value, a list of values of "
        "which any will do, or bounds by gt, gte, lt and lte.",
        examples=[{"lang": ["en", "de"], "year": {"gte": 2020}}],
    )
    include_text: IncludeText = False
    rerank: Literal["none", "eigenli", "maxsim"] | None = None
    n_candidates: int | None = Field(None, ge=1, le=MAX_CANDIDATES)
    explain: bool = Field(False, description="Say what each token of a query contributes.")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.queries is None) == (self.queries_embeddings is None):
            raise ValueError("give either queries or queries_embeddings")
        if self.where is not None and self.subset is not None:
            raise ValueError("give either where or subset, not both")
        return self

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        queries = self.all_queries
        tokens = sum(map(len, self.queries_embeddings or []))
        # A text has no more tokens than characters.
        explained = tokens or sum(min(len(text), _TEXT_TOKENS) for text in queries)
        _check_bound("queries x top", len(queries) * self.top, MAX_HITS)
        _check_bound(
            "queries x n_candidates", len(queries) * (self.n_candidates or 1), MAX_CANDIDATES
        )
        _check_bound("tokens of all queries", tokens, MAX_QUERY_TOKENS)
        if self.explain:
            _check_bound("query tokens x top to explain", explained * self.top, MAX_CONTRIBUTIONS)
        return self

    @property
    def all_queries(self) -> list[Any]:
        """Texts or token embeddings."""
        return self.queries or self.queries_embeddings or []


def _check_bound(what: str, number: int, most: int) -> None:
    if number > most:
        raise ValueError(f"{what}: {number:,} is more than the {most:,} of one request")


class SearchAddress(_Strict):
    """A search in the address of a GET request."""

    q: QueryText = Field(description="The question.")
    top: Top = 10
    where: Annotated[list[Annotated[str, Field(max_length=1000)]], AfterValidator(parse_where)] = (
        Field(
            default_factory=list,
            max_length=MAX_METADATA,
            description="Conditions on metadata, all of which must hold: lang=en, year>=2020. May be "
            "repeated; of several values of a name, any will do.",
            examples=[["lang=en", "year>=2020"]],
        )
    )
    include_text: IncludeText = False

    @property
    def request(self) -> SearchRequest:
        """The search as the body of a POST request has it."""
        asked = {"queries": [self.q], "top": self.top, "include_text": self.include_text}
        return SearchRequest.model_validate({**asked, "where": self.where or None})


class DocumentOut(BaseModel):
    """A document of the index."""

    id: str | int
    title: str
    text: str | None = Field(description="null in a search without include_text.")
    metadata: dict[str, str | int | float | bool]
    file: str | None = Field(description="The file that the document was read from.")
    page: int | None = Field(description="The number of its page in the file.")

    @classmethod
    def fields_of(cls, document: Document | Hit) -> dict[str, Any]:
        """Return the values of the fields."""
        return {name: getattr(document, name) for name in cls.model_fields}


class HitOut(DocumentOut):
    """A document that was found."""

    score: float
    share: float = Field(
        description="The share of the query that the document explains: the score divided by the "
        "highest score that any document could have."
    )
    snippet: str = Field(description="The part of the text with the most words of the query.")
    contributions: list[float] | None


class AnswerOut(BaseModel):
    """The documents found for one query, best first."""

    tokens: list[str] | None = Field(
        None, description="The tokens of a query that was given as a text."
    )
    hits: list[HitOut]


class SearchResponse(BaseModel):
    """The answers to all queries of a request, from one generation of the index."""

    results: list[AnswerOut]
    method: str
    milliseconds: float = Field(description="Time to encode, search and explain the whole batch.")
    generation: int = Field(description="The generation of the index that all results come from.")
    documents: int


class DocumentIn(_Strict):
    """A document as a text, or as token embeddings with or without a text to show."""

    id: DocumentId
    text: str = Field("", max_length=1_000_000)
    title: str = Field("", max_length=10_000)
    metadata: dict[Name, Value | None] = Field(default_factory=dict, max_length=MAX_METADATA)
    embeddings: Tokens | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.embeddings is None and not (self.text or self.title):
            raise ValueError("a document needs a text or embeddings")
        return self


class AddRequest(_Strict):
    """Documents to add, in place of those with the same ids."""

    documents: Items[DocumentIn] = Field(min_length=1, max_length=MAX_DOCUMENTS)


class RemoveRequest(_Strict):
    """Documents to remove."""

    ids: Items[DocumentId] = Field(min_length=1, max_length=MAX_DOCUMENTS)


class ChangeResponse(BaseModel):
    """The index after a change."""

    generation: int = Field(description="The first generation of the index that shows the change.")
    documents: int


class SpectrumRequest(_Strict):
    """Documents whose spectra are wanted."""

    ids: Items[DocumentId] = Field(min_length=1, max_length=20)


class Spectrum(BaseModel):
    """The eigenvalues of a document's second moment, descending."""

    id: str | int
    eigenvalues: list[float]


class SpectrumResponse(BaseModel):
    """Spectra, and how many directions of each the index keeps."""

    k: int
    spectra: list[Spectrum]


class Info(BaseModel):
    """What the index holds and how it was made."""

    kind: str
    holds: Literal["texts", "pages"] = Field(description="What the documents are.")
    documents: int = Field(description="Texts, records, passages of files, or pages.")
    passages: int = Field(description="Those of them that are passages or pages of files.")
    files: int = Field(description="Files that the index has passages or pages of.")
    dim: int | None
    bytes: int | None = Field(description="On disk; null where a database does not say.")
    bytes_per_document: int | None
    settings: dict[str, Any]
    model: str | None
    generation: int
    method: str
    maxsim: bool = Field(description='Whether rerank="maxsim" is possible.')


class Health(BaseModel):
    """The server is up."""

    status: Literal["ok"] = "ok"


class Problem(BaseModel):
    """What is wrong, in one line."""

    detail: str
