"""Spectral settings of an index: how tokens become subspaces and how queries are weighted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
import torch
from typing_extensions import Self

from ..errors import check_choice, check_positive
from ..tokens import TokenBatch
from .filters import SpectralFilter, as_filter
from .subspace import ShortDocuments

Preset = Literal["auto", "plus", "paper"]
Centering = Literal["none", "both", "documents"]

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "paper": {"filter": "hard", "standardise": False, "idf": 0.0, "background": 0.0},
        "plus": {"filter": "ridge", "standardise": True, "idf": 0.0, "background": 0.75},
    }
)

_OF_SEARCHES = ("idf", "background")
SPECTRAL = ("filter", "short_documents", "centering", "corpus_mean", "standardise", *_OF_SEARCHES)


@dataclass(frozen=True)
class SpectralSettings:
    """Settings that both kinds of index share.

    The manifest of an index stores its settings, and they are fixed from the first document on.
    Only ``idf`` and ``background`` are defaults, which an opened index or a search can override.
    With ``auto`` the first documents choose ``filter``, ``standardise`` and ``background``.
    """

    k: int = 32
    short_documents: ShortDocuments = "fill"
    filter: str = "hard"
    centering: Centering = "none"
    corpus_mean: tuple[float, ...] | None = None
    standardise: bool = False
    idf: float = 0.0
    background: float = 0.0
    auto: bool = False

    def __post_init__(self) -> None:
        check_positive(k=self.k)
        # NumPy numbers and lists become plain values, for JSON and for comparisons.
        mean = None if self.corpus_mean is None else tuple(map(float, self.corpus_mean))
        numbers = {"k": int(self.k), "idf": float(self.idf), "background": float(self.background)}
        for name, value in {**numbers, "corpus_mean": mean}.items():
            object.__setattr__(self, name, value)
        if not np.isfinite(mean or 0).all():
            raise ValueError("corpus_mean contains NaN or infinite values")
        check_choice("short_documents", self.short_documents, get_args(ShortDocuments))
        as_filter(self.filter)
        check_choice("centering", self.centering, get_args(Centering))
        if self.standardise and (mean is not None or self.centering != "none"):
            raise ValueError(
                "standardise=True removes the means of documents and queries: "
                "leave centering and corpus_mean out"
            )
        check_query_options(self.idf, self.background)

    def opened_with(self, wanted: Mapping[str, Any], where: object) -> Self:
        """Return the settings of an existing index, opened with the options ``wanted``.

        Options of searches override the stored values. All others must equal them; errors call
        the index ``where``.
        """
        chosen = {}
        for name, value in wanted.items():
            if name in _OF_SEARCHES:
                chosen[name] = value
            else:
                check_unchanged(where, name, getattr(self, name), value)
        return replace(self, **chosen)

    def centred(self, documents: TokenBatch) -> TokenBatch:
        """Return the centred tokens of documents, from which subspaces are computed."""
        documents = self._without_mean(documents)
        return documents if self.centering == "none" else documents.centred()

    def centred_queries(self, queries: TokenBatch) -> TokenBatch:
        """Return the centred tokens of queries, which are compared with subspaces."""
        queries = self._without_mean(queries)
        return queries.centred() if self.centering == "both" else queries

    def _without_mean(self, batch: TokenBatch) -> TokenBatch:
        if self.corpus_mean is None:
            return batch
        if len(self.corpus_mean) != batch.dim:
            raise ValueError(
                f"corpus_mean has {len(self.corpus_mean)} dimensions, tokens have {batch.dim}"
            )
        mean = torch.tensor(self.corpus_mean, dtype=batch.tokens.dtype, device=batch.tokens.device)
        return TokenBatch(batch.tokens - mean, batch.offsets)


def check_unchanged(where: object, name: str, made: object, value: object) -> None:
    """Raise an error if a value differs from the stored setting of an index."""
    if made != value:
        raise ValueError(
            f"{where} was made with {name}={made!r}, not {value!r}: leave {name} out to use it as "
            "it is, make another one of it with index.convert(...) (`eigenli convert`), or start "
            "again with override=True (--override)"
        )


def check_query_options(idf: float, background: float) -> None:
    """Raise an error if idf or background is out of range."""
    if not 0 <= idf <= 2:
        raise ValueError(f"idf must be between 0 and 2, got {idf!r}")
    if not 0 <= background <= 1:
        raise ValueError(f"background must be between 0 and 1, got {background!r}")


def with_preset(
    preset: Preset | None, filter: str | SpectralFilter | None, **given: Any
) -> dict[str, Any]:
    """Return the given settings, completed by the preset; None means not given."""
    given["filter"] = None if filter is None else str(as_filter(filter))
    mean = given.get("corpus_mean")
    if mean is not None:
        given["corpus_mean"] = tuple(torch.as_tensor(mean).detach().double().ravel().tolist())
    given = {name: value for name, value in given.items() if value is not None}
    if preset is None:
        return given
    check_choice("preset", preset, get_args(Preset))
    if preset != "auto":
        return {**PRESETS[preset], **given}
    for name in SPECTRAL:
        if name in given:
            raise ValueError(
                f'preset="auto" chooses {name} itself: leave {name} out, or give preset="plus" '
                'or "paper" with it'
            )
    return {"auto": True, **given}


def of_new_index(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a new index: automatic ones unless any of them was asked for."""
    automatic = not any(name in wanted for name in SPECTRAL)
    return {"auto": True, **wanted} if automatic else dict(wanted)
