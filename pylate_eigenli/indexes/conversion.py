"""Conversion of an index to another one, from what it keeps of its documents, without a model.

If the subspaces of documents stay the same, their vectors are computed from tokens or bases, or else
decoded. Another preset or k needs tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..spectral.settings import SPECTRAL
from ..spectral.subspace import Subspaces
from ..storage import DocumentId
from ..storage.batch import Batch
from ..storage.manifest import holds_index
from ..tokens import TokenBatch
from ..vectors.encoder import SubspaceEncoder, VectorEncoder
from ..vectors.packing import pack_subspaces
from ..vectors.projection import SVProjection, TokenProjection
from . import columns, databases
from .base import DocumentIndex
from .codecs import Codec, SubspaceCodec, VectorCodec
from .documents import progress_bar
from .settings import Settings, SVSettings, asks_for_vectors

_VECTOR_BYTES = 64 << 20
# Settings that the subspaces of documents depend on.
_OF_SUBSPACES = ("k", "short_documents", "filter", "centering", "corpus_mean", "standardise")


def new_settings(
    index: DocumentIndex[Any, Any], path: str | Path, override: bool, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options of the new index: those given, and for the others those of ``index``.

    Raises an error if the folder ``path`` is not free. ``given`` are options of
    :func:`pylate_eigenli.indexes.open_index.open_index`.
    """
    given = {name: value for name, value in given.items() if value is not None}
    backend = given.get("backend")
    to_database = backend in databases.NAMES
    if Path(path).resolve() == index._collection.path.resolve():
        raise ValueError(f"{path} is the index itself: choose another folder for the new one")
    if holds_index(Path(path)) and not override and not to_database:
        raise ValueError(
            f"{path} holds an index: choose another folder, or replace it with override=True "
            "(--override)"
        )
    is_sv = isinstance(index.settings, SVSettings)
    to_sv = given.pop("single_vector", None)
    if to_sv is None:
        to_sv = is_sv or asks_for_vectors(given)
    own = {name: value for name, value in asdict(index.settings).items() if name != "auto"}
    if "preset" in given:
        own = {name: value for name, value in own.items() if name not in SPECTRAL}
    moves = backend is not None and backend != own.get("backend")
    if to_sv != is_sv or (moves and (to_database or index.in_database)):
        del own["dtype"]
    if moves:
        own.pop("backend_options", None)
    if to_sv:
        encoder = index._collection.codec(index._snapshot).encoder
        own |= {
            "projection": encoder.projection,
            "token_projection": encoder.subspaces.transforms.projection,
        }
    else:
        kept = {field.name for field in fields(Settings)}
        own = {name: value for name, value in own.items() if name in kept}
    return {**own, **given, "single_vector": to_sv}


def copy_documents(source: DocumentIndex[Any, Any], target: DocumentIndex[Any, Any]) -> None:
    """Fill an index that was made with :func:`new_settings` with the documents of another one."""
    documents = _Documents(source)
    new = target._collection.codec(target._snapshot, source.dim)
    difference = documents.difference(new)
    if difference is None:
        codec = documents.converted(new)
        with progress_bar(target.show_progress, len(source)) as progress:
            target._documents.transfer(
                documents.dim,
                codec,
                lambda codec: (documents.stored(codec, part) for part in documents.parts()),
                progress,
            )
        return
    if source.settings.kept != "tokens":
        raise ValueError(
            f"{difference} needs the tokens of documents, which the index {source.index_name!r} does "
            "not keep: index the documents again; with EigenLISVIndex(keep_tokens=...) it is the "
            "last time"
        )
    with progress_bar(target.show_progress, len(source)) as progress:
        target._documents.add(lambda _: documents.with_tokens(), progress)
    documents.pass_queries_on(target)


class _Documents:
    """The documents of an index, and what another index can store of them."""

    def __init__(self, index: DocumentIndex[Any, Any]) -> None:
        if not len(index):
            raise ValueError(f"the index {index.index_name!r} holds no documents")
        self._index = index
        self._state = index._snapshot
        self._codec: Codec = index._collection.codec(self._state)
        self._kept = index.settings.kept
        dim = index.dim
        assert dim is not None  # of an index with documents
        self.dim = dim

    def difference(self, new: Codec) -> str | None:
        """Return the setting, in words, by which the subspaces of another codec differ, if any."""
        if new.settings.auto:
            return 'preset="auto"'
        for name in _OF_SUBSPACES:
            old, wanted = (getattr(codec.settings, name) for codec in (self._codec, new))
            if old != wanted:
                return f"{name}={wanted!r} instead of {old!r}"
        projections = (codec.subspaces.transforms.projection for codec in (self._codec, new))
        return None if _are_equal(*projections) else "another token_projection"

    def _check(self, new: Codec) -> None:
        """Raise an error if too little is kept of the documents for another codec."""
        settings = new.settings
        to_sv = isinstance(settings, SVSettings)
        wanted = "tokens" if to_sv and settings.keep_tokens != "none" else None
        if wanted is None and (not to_sv or settings.keep_bases):
            wanted = "bases"
        if wanted is not None and self._kept not in (wanted, "tokens"):
            raise ValueError(
                f"the index {self._index.index_name!r} keeps {self._kept or 'vectors'}, which "
                f"{wanted} cannot be made of: index the documents again, with "
                + ("EigenLIIndex or keep_bases=True" if wanted == "bases" else "keep_tokens")
            )
        if isinstance(new, VectorCodec):
            new.check_width(self.dim)
            if self._are_projected and not _are_equal(
                self._codec.encoder.projection, new.encoder.projection
            ):
                raise ValueError(
                    f"the vectors of {self._index.index_name!r} have been projected already"
                )

    @property
    def _are_projected(self) -> bool:
        """Whether only projected vectors are kept of the documents."""
        return self._kept is None and self._codec.encoder.projection is not None

    def converted(self, new: Codec) -> Codec:
        """Return the codec of a new index, with all that this index has learnt."""
        self._check(new)
        old, settings = self._codec, new.settings
        transforms = replace(old.subspaces.transforms, settings=settings)
        subspaces = SubspaceEncoder(settings, transforms)
        if not isinstance(new, VectorCodec):
            return replace(new, encoder=VectorEncoder(subspaces), fitted=True)
        encoder = replace(old.encoder, subspaces=subspaces, projection=new.encoder.projection)
        first = next(self.parts())
        tokens = self._tokens(first)
        if encoder.axis is None or not _are_equal(encoder.projection, old.encoder.projection):
            encoder = encoder.centred_on(self._packed(first), tokens)
        codec = VectorCodec(settings, encoder, fitted=True)
        if tokens is None:
            return codec
        vectors = encoder.vectors(self._packed(first))
        return codec.measured(tokens, vectors, self.stored(codec, first))

    def parts(self) -> Iterator[Batch]:
        """Yield the documents with all their columns."""
        size = max(1, _VECTOR_BYTES // (4 * self._codec.width(self.dim)))
        return self._index._documents.columns(self._state, None, size, kept=True)

    def stored(self, codec: Codec, part: Batch) -> Batch:
        """Return the columns of documents in the index of a codec with the same subspaces."""
        ids, tokens = part.ids(), self._tokens(part)
        if isinstance(codec, SubspaceCodec):
            return columns.of_subspaces(ids, self._subspaces(part), codec.settings.dtype)
        assert isinstance(codec, VectorCodec)
        subspaces = self._subspaces(part) if codec.settings.keep_bases else None
        vectors = self._packed(part)
        if not self._are_projected:
            vectors = codec.encoder.vectors(vectors)
        return codec.columns(ids, tokens, subspaces, vectors)

    def with_tokens(self) -> Iterator[tuple[list[DocumentId], TokenBatch]]:
        """Yield the ids and tokens of documents."""
        for part in self.parts():
            tokens = self._tokens(part)
            assert tokens is not None
            yield part.ids(), tokens

    def pass_queries_on(self, target: DocumentIndex[Any, Any]) -> None:
        """Copy the statistics of queries to a new index, if both standardise queries."""
        collection, own = target._collection, self._codec.subspaces.transforms
        codec = collection.codec(target._snapshot)
        theirs = codec.subspaces.transforms
        if (
            own.standardise is None
            or own.standardise.of_queries is None
            or theirs.standardise is None
        ):
            return
        if _are_equal(own.projection, theirs.projection):
            standardise = replace(theirs.standardise, of_queries=own.standardise.of_queries)
            subspaces = replace(
                codec.subspaces, transforms=replace(theirs, standardise=standardise)
            )
            encoder = replace(codec.encoder, subspaces=subspaces)
            with collection.store.transaction() as transaction:
                collection.keep(transaction, replace(codec, encoder=encoder))

    def _tokens(self, part: Batch) -> TokenBatch | None:
        if not columns.has_tokens(part):
            return None
        return TokenBatch(columns.tokens(part).decode(), part.offsets)

    def _subspaces(self, part: Batch) -> Subspaces:
        tokens = self._tokens(part)
        return (
            columns.subspaces(part) if tokens is None else self._codec.subspaces.subspaces(tokens)
        )

    def _packed(self, part: Batch) -> Tensor:
        """Return the kernel vectors of documents, or projected ones if only these are kept."""
        tokens = self._tokens(part)
        if tokens is not None:
            return self._codec.subspaces.packed(tokens)
        if columns.has_bases(part):
            kept = columns.subspaces(part)
            return pack_subspaces(kept.rows, kept.offsets, columns.floors(part))
        return self._codec.vectors(part, np.arange(len(part)))


def _are_equal(
    one: SVProjection | TokenProjection | None, other: SVProjection | TokenProjection | None
) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one.directions, other.directions)
