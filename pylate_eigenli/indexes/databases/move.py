"""From files to a server: the documents of an index move without being encoded again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from .. import databases as servers
from ..eigenli import EigenLIIndex
from ..index_vectors import IndexVectors
from ...vectors.projection import SVProjection
from .served_index import ServedSVIndex
from .upload import Batch
from ...vectors.encoder import Projections
from ..single_vector import EigenLISVIndex

_VECTOR_BYTES = 64 << 20
# Settings of an index that are not those of its copy on a server.
_OWN_SETTINGS = ("dtype", "backend", "backend_options", "projection", "token_projection")


def move(
    index: EigenLIIndex | EigenLISVIndex,
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
    """Copy all documents of an index to a server, and return the index that searches them there.

    Vectors are those that the index keeps, as exact as it keeps them, or are made of its
    subspaces; tokens and bases go with them. Doing it again adds no document twice.

    Parameters
    ----------
    index
        The index, which is left as it is.
    backend, uri, token, backend_options
        The server, as for :class:`pylate_eigenli.EigenLISVIndex`.
    index_folder, index_name
        Of the new index. By default beside the index, with the backend's name appended.
    projection
        Makes the vectors shorter on their way, unless they have been projected already.
    only_missing
        Whether to leave out documents that the server holds already: to go on where an
        interrupted transfer of the same documents stopped.
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
    if backend not in servers.NAMES:
        raise ValueError(f"backend must be one of {', '.join(servers.NAMES)}, got {backend!r}")
    source = IndexVectors.of(index)
    given = source.projections or Projections()
    if projection is not None:
        if given.vectors is not None:
            raise ValueError(f"the vectors of {index.index_name!r} have been projected already")
        given = Projections(given.tokens, projection)
    settings = {k: v for k, v in asdict(index.settings).items() if k not in _OWN_SETTINGS}
    if isinstance(index, EigenLIIndex):
        settings["keep_bases"] = True
    target = EigenLISVIndex(
        index_folder or index.index_folder,
        index_name or f"{index.index_name}-{backend}",
        backend=backend,
        backend_options=backend_options,
        uri=uri,
        token=token,
        projection=given.vectors,
        token_projection=given.tokens,
        show_progress=show_progress,
        **settings,
    )
    assert isinstance(target, ServedSVIndex)
    return target.upload(
        _batches(index, source, target, given, only_missing), None if only_missing else len(index)
    )


def _batches(
    index: EigenLIIndex | EigenLISVIndex,
    source: IndexVectors,
    target: ServedSVIndex,
    given: Projections,
    only_missing: bool,
) -> Iterator[Batch]:
    """Yield the documents of an index as another one keeps them, which is prepared if need be."""
    keeps_rows = target.settings.kept is not None
    for rows in source.batches(max(1, _VECTOR_BYTES // (4 * source.dim))):
        ids = source.ids(rows)
        if only_missing:
            missing = set(target.missing(ids))
            keep = [i for i, document_id in enumerate(ids) if document_id in missing]
            rows, ids = rows[keep], [ids[i] for i in keep]
        if not ids:
            continue
        vectors = source.vectors(rows)
        if target.dim is None:
            assert index.dim is not None
            if given.vectors is None and given.centre is None:
                given = given.centred_on(vectors, target.settings)
            target.prepare(index.dim, given)
        if not source.projected:
            vectors = target._projections(target._snapshot).document_vectors(vectors)
        yield Batch(ids, vectors.numpy(), source.kept(rows) if keeps_rows else None)
