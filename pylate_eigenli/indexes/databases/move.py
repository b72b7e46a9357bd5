"""Copy the documents of an index to a database without encoding them again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from ...spectral.settings import check_choice
from ...storage.batch import Batch
from ...vectors.encoder import VectorEncoder
from ...vectors.projection import SVProjection
from .. import columns, databases
from ..base import DocumentIndex
from ..codecs import VectorCodec
from ..documents import progress_bar
from ..single_vector import EigenLISVIndex
from .documents import DatabaseDocuments

_VECTOR_BYTES = 64 << 20
# Settings that an index does not share with its copy in a database.
_OWN_SETTINGS = ("auto", "dtype", "backend", "backend_options", "projection", "token_projection")


def move(
    index: DocumentIndex[Any, Any],
    backend: str,
    *,
    uri: str | None = None,
    token: str | None = None,
    backend_options: dict[str, Any] | None = None,
    index_folder: str | None = None,
    index_name: str | None = None,
    projection: SVProjection | None = None,
    only_missing: bool = False,
    show_progress: bool = True,
) -> EigenLISVIndex:
    """Copy all documents of an index to a database, and return the index that searches them there.

    The vectors come from the index itself, with its precision, or from its subspaces. Tokens and
    bases are copied too. A repeated call adds no document twice.

    Parameters
    ----------
    index
        The index; it is not changed.
    backend, uri, token, backend_options
        The database, as for :class:`pylate_eigenli.EigenLISVIndex`.
    index_folder, index_name
        Folder and name of the new index. By default it lies next to the index, with the name of the
        backend appended.
    projection
        Shortens the vectors. An index with projected vectors refuses it.
    only_missing
        Whether to skip documents that the database already holds, to continue an interrupted
        transfer.
    show_progress
        Whether to show a progress bar.

    Examples
    --------
    >>> import tempfile
    >>> import pytest
    >>> import torch
    >>> _ = pytest.importorskip("qdrant_client")
    >>> from pylate_eigenli import EigenLIIndex
    >>> index = EigenLIIndex(tempfile.mkdtemp(), k=2, show_progress=False)
    >>> index = index.add_documents(["first", "second"], torch.eye(8).reshape(2, 4, 8))
    >>> served = move(index, "qdrant", uri=":memory:", show_progress=False)
    >>> len(served), served(torch.eye(8)[4:], k=1)[0][0]["id"]
    (2, 'second')
    """
    check_choice("backend", backend, databases.NAMES)
    if not len(index):
        raise ValueError(f"the index {index.index_name!r} holds no documents")
    encoder = index._collection.codec(index._snapshot).encoder
    if projection is not None:
        if encoder.projection is not None:
            raise ValueError(f"the vectors of {index.index_name!r} have been projected already")
        encoder = VectorEncoder(encoder.subspaces, projection)
    settings = {k: v for k, v in asdict(index.settings).items() if k not in _OWN_SETTINGS}
    # An index of subspaces keeps nothing but bases.
    settings.setdefault("keep_bases", True)
    target = EigenLISVIndex(
        index_folder or index.index_folder,
        index_name or f"{index.index_name}-{backend}",
        backend=backend,
        backend_options=backend_options,
        uri=uri,
        token=token,
        projection=encoder.projection,
        token_projection=encoder.subspaces.transforms.projection,
        show_progress=show_progress,
        **settings,
    )
    store = target._documents
    assert isinstance(store, DatabaseDocuments)
    with progress_bar(show_progress, None if only_missing else len(index)) as progress:
        store.upload(_batches(index, target, store, encoder, only_missing), progress)
    return target


def _batches(
    index: DocumentIndex[Any, Any],
    target: EigenLISVIndex,
    store: DatabaseDocuments,
    encoder: VectorEncoder,
    only_missing: bool,
) -> Iterator[Batch]:
    """Yield the documents of an index as the target keeps them; prepare the target first."""
    state, settings = index._snapshot, target.settings
    codec, dim = index._collection.codec(state), index.dim
    assert dim is not None
    projected = codec.encoder.projection is not None
    size = max(1, _VECTOR_BYTES // (4 * codec.width(dim)))
    for part in index._documents.columns(state, None, size, settings.kept is not None):
        if only_missing:
            missing = set(target.missing(part.ids()))
            keep = [i for i, document_id in enumerate(part.ids()) if document_id in missing]
            if not keep:
                continue
            part = part.take(np.array(keep))
        vectors = codec.vectors(part, np.arange(len(part)))
        if target.dim is None:
            if encoder.projection is None and encoder.centre is None:
                encoder = encoder.centred_on(vectors)
            store.prepare(dim, VectorCodec(settings, encoder, fitted=True))
        theirs = target._collection.codec(target._snapshot)
        if not projected:
            vectors = theirs.encoder.vectors(vectors)
        yield theirs.with_vectors(columns.without_vectors(part), vectors)
