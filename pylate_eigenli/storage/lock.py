"""One writer at a time, across threads, processes and machines that share the folder."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import IndexLockedError
from .disk import make_folder

LOCK_NAME = "writer.lock"
OWNER_NAME = "writer.json"


@contextmanager
def writer_lock(folder: Path) -> Iterator[None]:
    """Hold the right to write to ``folder``, which is created if need be.

    The operating system releases the lock of a process that dies.

    Raises
    ------
    IndexLockedError
        Somebody else holds it; the message says which process.
    """
    make_folder(folder)
    # A lock object of its own for every writer: filelock lets one object in more than once.
    lock = FileLock(folder / LOCK_NAME, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise IndexLockedError(
            f"the index in {folder} is being written by {_owner(folder)}; try again later"
        ) from None
    owner = folder / OWNER_NAME  # beside the lock, which some versions of filelock truncate
    try:
        owner.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        yield
    finally:
        with suppress(OSError):
            owner.unlink()
        lock.release()


def _owner(folder: Path) -> str:
    try:
        owner = json.loads((folder / OWNER_NAME).read_text())
        return f"process {owner['pid']} on {owner['host']}"
    except (OSError, ValueError, KeyError, TypeError):  # about to be written, or just deleted
        return "another process"
