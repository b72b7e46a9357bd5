"""What an index holds, as plain Python values that tests can compare."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from pylate_eigenli.storage import Snapshot, Store
from pylate_eigenli.storage.manifest import Manifest

Contents = dict[str, Any]


def contents(snapshot: Snapshot) -> Contents:
    """Meta, collection-wide arrays, and every living document with its columns, in order."""
    documents = []
    for segment in snapshot.segments:
        ids = segment.ids()
        for row in np.flatnonzero(segment.alive):
            values: dict[str, Any] = {}
            for name, kind in sorted(segment.schema.items()):
                column = segment.column(name)
                if kind.per == "document":
                    values[name] = column[row].tolist()
                else:
                    values[name] = column[segment.offsets[row] : segment.offsets[row + 1]].tolist()
            documents.append((ids[row], values))
    collection = {name: array.tolist() for name, array in sorted(snapshot.collection.items())}
    return {"meta": dict(snapshot.meta), "collection": collection, "documents": documents}


def document_columns(values: list[int], lengths: list[int]) -> dict[str, Any]:
    """Arguments of ``append`` for documents whose columns are all made from one number each."""
    return {
        "documents": {"code": np.array([[value, -value] for value in values], dtype=np.int16)},
        "rows": {"token": np.repeat(np.array(values, dtype=np.float32), lengths)[:, None]},
        "lengths": lengths,
    }


def orphans(folder: Path) -> set[str]:
    """Files in the folder of an index that nothing refers to and no writer needs."""
    used = {record.file for record in Manifest.read(folder).files()}
    return set(os.listdir(folder)) - used - {"manifest.json", "writer.lock", "reserve"}


def assert_sound(store: Store) -> None:
    """The state on disk is undamaged, nothing is left over, and looking up ids finds them all."""
    assert store.verify() == []
    assert orphans(store.path) == set()
    snapshot = store.snapshot
    ids = list(snapshot)
    rows = snapshot.locate(ids)
    assert len(snapshot) == len(ids) == len(set(ids))
    assert np.all(np.diff(rows) > 0)
    assert (rows >= 0).all()
    assert snapshot.ids_of(rows) == ids
