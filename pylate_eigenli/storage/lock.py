"""The writer lock: one writer at a time, over threads, processes and machines."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import IndexLockedError
from .disk import check_file, make_folder

LOCK_NAME = "writer.lock"
OWNER_NAME = "writer.json"


@contextmanager
def writer_lock(folder: Path) -> Iterator[None]:
    """Hold the writer lock of ``folder``, which is created if it does not exist.

    The operating system releases the lock when its process dies.

    Raises
    ------
    IndexLockedError
        Another writer holds the lock; the message names its process.
    """
    make_folder(folder)
    check_file(folder / LOCK_NAME)
    # Every writer has its own lock object, because filelock objects are reentrant.
    lock = FileLock(folder / LOCK_NAME, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise IndexLockedError(
            f"the index in {folder} is being written by {_owner(folder)}; try again later"
        ) from None
    owner = folder / OWNER_NAME  # not in the lock file, which some versions of filelock truncate
    try:
        with suppress(OSError):  # for instance because the disk is full
            owner.unlink(missing_ok=True)  # it could be a link
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
    except (OSError, ValueError, KeyError, TypeError):  # not yet written, or just deleted
        return "another process"
