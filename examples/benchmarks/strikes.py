"""Faults of a machine, made on purpose: processes that die, calls that fail, power that is cut.

Only Python's own calls can be struck and followed. SQLite makes its own: of its files a power cut
leaves what they hold at that moment, since SQLite syncs what it has committed.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WRITING_CALLS = ("open", "write", "fsync", "close", "replace", "unlink", "mkdir", "listdir")
STRUCK = 3
_KILLED = 4


def die() -> None:
    """End this process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    """Raise the error of a broken disk."""
    raise OSError(errno.EIO, "injected")


def strike_at_call(number: int, strike: Callable[[], None]) -> Callable[[], bool]:
    """Have the ``number``-th call that touches the disk struck; returns what tells if it was."""
    remaining = number

    def exposed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            nonlocal remaining
            remaining -= 1
            if not remaining:
                if name == "write":  # in the middle of it
                    call(args[0], args[1][: len(args[1]) // 2])
                strike()
            return call(*args, **kwargs)

        return called

    for name in WRITING_CALLS:
        setattr(os, name, exposed(name, getattr(os, name)))
    return lambda: remaining <= 0


def is_struck(change: Callable[[], None], call: int, strike: Callable[[], None]) -> bool:
    """Make a change in a process of its own; return whether it made as many calls as that."""

    def struck() -> int:
        is_over = strike_at_call(call, strike)
        try:
            change()
        except Exception:  # whatever the failed call has led to
            return STRUCK if is_over() else 1
        return STRUCK if is_over() else 0

    code = in_child(struck)
    if code not in (0, STRUCK, _KILLED):
        raise RuntimeError(f"the change failed before call {call}")
    return code != 0


def in_child(function: Callable[[], int | None]) -> int:
    """Run a function in a process of its own; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = function() or 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return _KILLED
    return os.WEXITSTATUS(status)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let the kernel refuse to make files larger than that, as it does when a disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# --------------------------------------------------------------------------------------
# Power cuts: everything that a process does to a folder is written down. A cut leaves what was
# synced, and of the rest whatever chance leaves.


@dataclass
class _File:
    """What a file holds, and how much of it is on disk."""

    written: bytes = b""
    synced: bytes = b""

    def after_cut(self, chance: random.Random) -> bytes:
        lost = self.written[len(self.synced) :]
        some = lost[: chance.randint(0, len(lost))]
        return self.synced + chance.choice([b"", some, lost, bytes(len(lost))])


@dataclass
class Disk:
    """A folder as a power cut can leave it.

    Names that were changed since the folder was synced may have changed or not, each on its own.
    """

    files: dict[int, _File] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    unsynced: list[tuple[str, int | None]] = field(default_factory=list)
    others: dict[str, bytes] = field(default_factory=dict)

    def apply(self, event: tuple[Any, ...]) -> None:
        """Follow one event of a :class:`Recording`."""
        kind, *details = event
        if kind == "named":  # None for a name that is gone
            name, number = details
            self.unsynced.append((name, number))
            if number is not None:
                self.files.setdefault(number, _File())
        elif kind == "written":
            number, data = details
            self.files[number].written += data
        elif kind == "synced":
            file = self.files[details[0]]
            file.synced = file.written
        elif kind == "folder synced":
            for name, number in self.unsynced:
                _set(self.names, name, number)
            self.unsynced.clear()
        elif kind == "others":
            (self.others,) = details

    def cut(self, folder: Path, chance: random.Random) -> None:
        """Write what is left to a new folder."""
        folder.mkdir(parents=True)
        names = dict(self.names)
        for name, number in self.unsynced:
            if chance.random() < 0.5:
                _set(names, name, number)
        for name, number in names.items():
            (folder / name).write_bytes(self.files[number].after_cut(chance))
        for name, data in self.others.items():
            (folder / name).write_bytes(data)


def _set(names: dict[str, int], name: str, number: int | None) -> None:
    if number is None:
        names.pop(name, None)
    else:
        names[name] = number


class Recording:
    """Everything that this process does to a folder, from now on.

    Parameters
    ----------
    folder
        The folder, which must not exist yet.
    others
        Prefix of the names of files that Python's calls do not write: they are copied.
    """

    def __init__(self, folder: Path, others: str) -> None:
        self.events: list[tuple[Any, ...]] = []
        self._folder = folder
        self._prefix = others
        self._copied: dict[str, bytes] = {}
        self._numbers: dict[str, int] = {}
        self._open: dict[int, int | None] = {}  # files by descriptor, None for the folder
        self._next = 0
        calls: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in WRITING_CALLS}
        self._listdir = calls["listdir"]

        def opened(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            existed = os.path.lexists(path)
            descriptor: int = calls["open"](path, flags, *rest, **more)
            name = self._name(path)
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                if Path(path) == folder:
                    self._open[descriptor] = None
            elif name is not None and flags & os.O_WRONLY:
                if not existed or flags & os.O_TRUNC:
                    self._named(name, self._new())
                self._open[descriptor] = self._numbers[name]
            return descriptor

        def written(descriptor: int, data: Any) -> int:
            count: int = calls["write"](descriptor, data)
            if self._open.get(descriptor) is not None:
                self._add("written", self._open[descriptor], bytes(data[:count]))
            return count

        def synced(descriptor: int) -> None:
            calls["fsync"](descriptor)
            if descriptor in self._open:
                number = self._open[descriptor]
                self._add(*(("folder synced",) if number is None else ("synced", number)))

        def closed(descriptor: int) -> None:
            self._open.pop(descriptor, None)
            calls["close"](descriptor)

        def replaced(source: Any, target: Any, **more: Any) -> None:
            calls["replace"](source, target, **more)
            old, new = self._name(source), self._name(target)
            if old in self._numbers and new is not None:
                self._named(new, self._numbers[old])
                self._named(old, None)

        def unlinked(path: Any, **more: Any) -> None:
            calls["unlink"](path, **more)
            if self._name(path) in self._numbers:
                self._named(self._name(path), None)

        wrapped = (opened, written, synced, closed, replaced, unlinked)
        for name, call in zip(WRITING_CALLS[:6], wrapped, strict=True):
            setattr(os, name, call)

    def note(self, what: Any) -> None:
        """Write down something that is not done to the folder."""
        self._add("noted", what)

    def _name(self, path: Any) -> str | None:
        """Return the name of a file in the folder that is followed."""
        path = Path(os.fsdecode(path)) if not isinstance(path, int) else Path()
        followed = path.parent == self._folder and not path.name.startswith(self._prefix)
        return path.name if followed else None

    def _new(self) -> int:
        self._next += 1
        return self._next

    def _named(self, name: Any, number: int | None) -> None:
        _set(self._numbers, name, number)
        self._add("named", name, number)

    def _add(self, *event: Any) -> None:
        found = self._listdir(self._folder) if self._folder.is_dir() else []
        copies = {
            name: (self._folder / name).read_bytes()
            for name in found
            if name.startswith(self._prefix)
        }
        if copies != self._copied:
            self._copied = copies
            self.events.append(("others", copies))
        self.events.append(event)
