"""Writes that survive a crash: contents reach the disk before anything refers to them."""

from __future__ import annotations

import os
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"


def make_folder(path: Path) -> None:
    """Create ``path`` and its missing parents, each of them recorded on disk by its own parent."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def write_file(path: Path, payload: bytes) -> None:
    """Write ``payload`` to ``path`` and return once it is on disk.

    Callers use names nothing refers to yet: a file already there is what a killed writer left.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, 0o666)
    try:
        remaining = memoryview(payload)
        while remaining:  # the kernel may take less than it was given
            remaining = remaining[os.write(descriptor, remaining) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, payload: bytes) -> None:
    """Replace ``path`` in one step: at any moment a reader finds the old file or the new one, whole.

    The folder is synced before the rename as well as after it: the names of the files that
    ``payload`` refers to have to be on disk first, or a power cut could keep the rename alone.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    write_file(temporary, payload)
    sync_folder(path.parent)
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Bring the folder's list of names to disk."""
    if os.name == "nt":  # Windows cannot open a folder, and keeps its names in the journal itself
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
