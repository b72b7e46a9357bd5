"""Durable writes: the contents of a file reach the disk before another file refers to it."""

from __future__ import annotations

import os
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"


def make_folder(path: Path) -> None:
    """Create ``path`` and its missing parents, and sync the parent of each new folder."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def write_file(path: Path, payload: bytes) -> None:
    """Write ``payload`` to ``path``, and return when it is on disk.

    Callers use new names only.  An existing file is a leftover of a killed writer.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, 0o666)
    try:
        remaining = memoryview(payload)
        while remaining:  # os.write may write only a part
            remaining = remaining[os.write(descriptor, remaining) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, payload: bytes) -> None:
    """Replace ``path`` atomically: a reader finds either the complete old file or the new one.

    The folder is synced before and after the rename.  The first sync brings the names of all files
    that ``payload`` refers to to disk; without it, only the rename might survive a power cut.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    write_file(temporary, payload)
    sync_folder(path.parent)
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Sync the directory entry of a folder to disk."""
    if os.name == "nt":  # Windows cannot open a folder; its journal keeps the names
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
