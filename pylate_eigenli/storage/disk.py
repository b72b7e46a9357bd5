"""Durable writes: the contents of a file reach the disk before another file refers to it."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ..errors import IndexFormatError

TEMPORARY_SUFFIX = ".tmp"
RESERVE_NAME = "reserve"
_RESERVED_AT_ONCE = 4096


def make_folder(path: Path) -> None:
    """Create ``path`` and its missing parents, and sync the parent of each new folder."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def write_file(path: Path, payload: bytes) -> None:
    """Write ``payload`` to a new file at ``path``, and return when it is on disk.

    Callers use new names only.  What exists is a leftover of a killed writer, or a link that
    somebody has put there.  It is deleted, never written to: another process may have mapped it.
    """
    delete_file(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, 0o666)
    try:
        remaining = memoryview(payload)
        while remaining:  # os.write may write only a part
            remaining = remaining[os.write(descriptor, remaining) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading; raise an ``IndexFormatError`` for a folder, a pipe or a device."""
    # Without O_NONBLOCK, opening a pipe waits for somebody who writes to it.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENODEV):
            raise IndexFormatError(f"{path} is not a file: {error.strerror}") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IndexFormatError(f"{path} is not a file")
    return os.fdopen(descriptor, "rb")


def check_file(path: Path) -> None:
    """Raise an ``IndexFormatError`` if there is something at ``path`` that is not a file itself.

    For files that a library opens, which would follow a link or wait for a pipe.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise _no_file(path)


def delete_file(path: Path) -> None:
    """Delete what is at ``path``, if anything; raise an ``IndexFormatError`` for a folder."""
    check_no_folder(path)
    with suppress(FileNotFoundError):
        os.unlink(path)


def check_no_folder(path: Path) -> None:
    """Raise an ``IndexFormatError`` if a folder is where a file is to be written or deleted."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            raise _no_file(path)


def _no_file(path: Path) -> IndexFormatError:
    return IndexFormatError(f"{path} is not a file; remove it to go on")


def replace_file(path: Path, payload: bytes) -> None:
    """Replace ``path`` atomically: a reader finds either the complete old file or the new one.

    The folder is synced before and after the rename.  The first sync brings the names of all files
    that ``payload`` refers to to disk; without it, only the rename might survive a power cut.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    check_no_folder(path)
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


def keep_reserve(folder: Path, size: int) -> None:
    """Keep a file of this size, or of as much as there is room for."""
    path = folder / RESERVE_NAME
    with suppress(OSError):
        if size and (not os.path.lexists(path) or os.lstat(path).st_size < size):
            release_reserve(folder)
            sync_folder(folder)  # ext4 gives the space of deleted files back only then
            with path.open("xb", buffering=0) as file:
                for begin in range(0, size, _RESERVED_AT_ONCE):
                    # Random, because some file systems store no zeros.
                    file.write(os.urandom(min(_RESERVED_AT_ONCE, size - begin)))


def release_reserve(folder: Path) -> None:
    """Delete the file, so that even on a full disk there is room to remove documents."""
    with suppress(OSError):
        os.unlink(folder / RESERVE_NAME)
