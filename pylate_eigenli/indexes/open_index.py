"""Indexes by their folder, of whichever kind they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..storage.manifest import Manifest
from .eigenli import EigenLIIndex
from .settings import asks_for_vectors
from .single_vector import EigenLISVIndex

_KINDS: dict[str, type[EigenLIIndex] | type[EigenLISVIndex]] = {
    index.kind: index for index in (EigenLIIndex, EigenLISVIndex)
}


def open_index(
    path: str | Path,
    *,
    single_vector: bool | None = None,
    override: bool = False,
    show_progress: bool = False,
    trust_index: bool = False,
    **settings: Any,
) -> EigenLIIndex | EigenLISVIndex:
    """Open the index in a folder, of whichever kind it is, or make one.

    Parameters
    ----------
    path
        The folder of the index itself.
    single_vector
        Whether it is an :class:`pylate_eigenli.EigenLISVIndex`. By default whatever it is; a new
        one is if it is given an option that only such an index has.
    override
        Whether the first change replaces all that the index holds. Until then the old documents
        stay on disk, whatever fails.
    show_progress
        Whether to show a progress bar while documents are added.
    trust_index
        Whether to open a database that only the folder names, or the ANN structure of somebody
        else; see :class:`pylate_eigenli.EigenLISVIndex`.
    settings
        Further options of the index, None for the default.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> _ = open_index(folder, k=2, single_vector=True).add_documents(["a"], [[[0.6, 0.8, 0.0]]])
    >>> index = open_index(folder)
    >>> type(index).__name__, index.settings.k, len(index)
    ('EigenLISVIndex', 2, 1)
    """
    folder = Path(path).resolve()
    meta = {} if override else Manifest.read(folder).meta
    given = {name: value for name, value in settings.items() if value is not None}
    is_new_sv = asks_for_vectors(given) if single_vector is None else single_vector
    kind = meta.get("kind", "eigenli-sv" if is_new_sv else "eigenli")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"{folder} holds an index of the unknown kind {kind!r}")
    if single_vector is not None and (_KINDS[kind] is EigenLISVIndex) != single_vector:
        kinds = ("subspaces", "single vectors")
        raise ValueError(
            f"{folder} holds an index of {kinds[not single_vector]}, not of {kinds[single_vector]}: "
            "make one of it with index.convert(...) (`eigenli convert`)"
        )
    if _KINDS[kind] is EigenLISVIndex:
        given["trust_index"] = trust_index
    return _KINDS[kind](
        str(folder.parent), folder.name, override=override, show_progress=show_progress, **given
    )
