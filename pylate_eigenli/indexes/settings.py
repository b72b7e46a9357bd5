"""Settings of indexes: stored in their manifests and fixed from the first document on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from numpy.typing import ArrayLike
from typing_extensions import Self, TypedDict

from ..errors import check_choice
from ..spectral.filters import SpectralFilter
from ..spectral.settings import (
    Centering,
    Preset,
    SpectralSettings,
    check_unchanged,
)
from ..spectral.subspace import ShortDocuments
from ..vectors.quantization import VECTOR_DTYPES, VectorDtype
from ..vectors.rows import ROW_DTYPES, RowDtype
from .registry import ANN, BUILT_IN, DATABASES, library, options_of, type_of

KeepTokens = Literal["none", "float16", "int8"]
Kept = Literal["tokens", "bases"]


class SpectralOptions(TypedDict, total=False):
    """The options of both kinds of index, as :class:`pylate_eigenli.EigenLIIndex` explains them."""

    k: int | None
    short_documents: ShortDocuments | None
    preset: Preset | None
    filter: str | SpectralFilter | None
    centering: Centering | None
    corpus_mean: ArrayLike | None
    standardise: bool | None
    idf: float | None
    background: float | None


@dataclass(frozen=True)
class _IndexSettings(SpectralSettings):
    """Settings of both kinds of index."""

    @property
    def kept(self) -> Kept | None:
        """Which rows of documents are kept, for re-ranking."""
        return "bases"

    def check_kept(self, wanted: Kept) -> None:
        """Raise an error if rows of documents are not kept."""
        if self.kept != wanted:
            elsewhere = {
                "bases": ": index.bases(ids) returns them",
                "tokens": ": compress(index.get_documents_embeddings([ids])[0]) makes bases of them",
                None: "",
            }
            option = {"tokens": 'keep_tokens="float16"', "bases": "keep_bases=True"}[wanted]
            raise ValueError(
                f"the index keeps {self.kept or 'vectors'}, not {wanted}{elsewhere[self.kept]}; "
                f"EigenLISVIndex({option}) keeps {wanted}"
            )


@dataclass(frozen=True)
class Settings(_IndexSettings):
    """Settings of an :class:`pylate_eigenli.EigenLIIndex`.

    Examples
    --------
    >>> Settings(k=16, dtype="int8").filter
    'hard'
    """

    dtype: RowDtype = "float16"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("dtype", self.dtype, ROW_DTYPES)


def asks_for_vectors(options: Mapping[str, Any]) -> bool:
    """Return whether only an index of single vectors has such options.

    Examples
    --------
    >>> asks_for_vectors({"dtype": "binary"}), asks_for_vectors({"k": 16, "dtype": "int8"})
    (True, False)
    """
    own = {field.name for field in fields(SVSettings)} - {field.name for field in fields(Settings)}
    return not own.isdisjoint(options) or options.get("dtype", ROW_DTYPES[0]) not in ROW_DTYPES


@dataclass(frozen=True)
class SVSettings(_IndexSettings):
    """Settings of an :class:`pylate_eigenli.EigenLISVIndex`.

    Examples
    --------
    >>> SVSettings(backend="qdrant", dtype="float32").in_database
    True
    """

    dtype: VectorDtype = "int8"
    keep_tokens: KeepTokens = "none"
    keep_bases: bool = False
    projection: int | None = None
    token_projection: int | None = None
    backend: str = "exact"
    backend_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("dtype", self.dtype, VECTOR_DTYPES)
        check_choice("keep_tokens", self.keep_tokens, get_args(KeepTokens))
        check_choice("backend", self.backend, ("exact", *ANN, *DATABASES))
        if self.in_database and self.dtype != "float32":
            raise ValueError(
                f'dtype must be "float32" for backend={self.backend!r}, got {self.dtype!r}: '
                "index_type or quantization in backend_options say what the database searches"
            )
        if self.backend != "exact":
            options_of(self.backend, self.backend_options)
        if self.backend not in BUILT_IN:
            library(self.backend)

    @property
    def in_database(self) -> bool:
        """Whether a vector database holds the documents."""
        return self.backend in DATABASES

    @property
    def kept(self) -> Kept | None:
        if self.keep_tokens != "none":
            return "tokens"
        return "bases" if self.keep_bases else None

    def opened_with(self, wanted: Mapping[str, Any], where: object) -> Self:
        """As for both kinds of index; options of the backend for searches may change too."""
        rest = dict(wanted)
        if "backend" in rest:  # told first: the dtype of a database follows from its name
            check_unchanged(where, "backend", self.backend, rest["backend"])
        options = rest.pop("backend_options", None)
        settings = super().opened_with(rest, where)
        if not options:
            return settings
        exact = self.backend == "exact"
        of_searches = () if exact else type_of(self.backend).options_type.of_searches
        for name, value in options.items():
            if name not in of_searches:
                check_unchanged(
                    where, f"{name} in backend_options", self.backend_options.get(name), value
                )
        return replace(settings, backend_options={**self.backend_options, **options})
