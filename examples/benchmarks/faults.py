"""Indexes under fire: killed at random, at every system call, out of disk, and cut off from power.

    cd examples && python -m benchmarks.faults --kills 1000 --cuts 1000

Every kind of index goes through the same changes: an override, additions, replacements, removals
and compactions. Whatever happens to the process or the machine, the index must then hold the last
change that was acknowledged, or the one under way, whole; it must be sound, and take the next
change. The exit code is 1 if any index did not.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from benchmarks.strikes import Disk, Recording, die, fail, in_child, is_struck, largest_file
from pylate_eigenli import EigenLIIndex, EigenLISVIndex, TextIndex
from pylate_eigenli.corpus.catalogue_file import FILE_NAME
from pylate_eigenli.corpus.committing import verify
from pylate_eigenli.corpus.document import Document
from pylate_eigenli.corpus.page_index import PageIndex
from pylate_eigenli.corpus.sources import Part

_DIM, _DIRECTIONS = 8, 3
_FILE_SIZES = (0, 100, 1000, 3000, 8000, 20_000)
_PAGES = 30
_QUICKLY = 0.7  # of the time that all changes take: most kills come while they are made


def tokens(number: int, version: int) -> np.ndarray:
    """Return the tokens of one version of a document."""
    rng = np.random.default_rng([number, version])
    return rng.standard_normal((2 + number % 5, _DIM)).astype(np.float32)


class Vectors:
    """An index of PyLate's kind."""

    def __init__(self, index_type: Any, **options: Any) -> None:
        if index_type is EigenLISVIndex:
            options["trust_index"] = True  # copies of an index are in other folders
        self._open = partial(index_type, show_progress=False, k=_DIRECTIONS, **options)

    def _opened(self, folder: Path, **options: Any) -> Any:
        return self._open(str(folder.parent), folder.name, **options)

    def add(self, folder: Path, numbers: Sequence[int], version: int, **options: Any) -> None:
        with self._opened(folder, **options) as index:
            index.add_documents(numbers, [tokens(n, version) for n in numbers])

    def remove(self, folder: Path, numbers: Sequence[int]) -> None:
        with self._opened(folder) as index:
            index.remove_documents(numbers)

    def compact(self, folder: Path) -> None:
        with self._opened(folder) as index:
            index.compact()
            if getattr(index.settings, "backend", "exact") != "exact":
                index.build()

    def contents(self, folder: Path) -> list[Any]:
        with self._opened(folder) as index:
            found = _vectors(index)
            if found:
                (hits,) = index([tokens(0, 0)], k=1000)
                assert len(hits) == len(found), f"{len(hits)} of {len(found)} documents are found"
            return found


class Texts:
    """An index of texts, whose catalogue has to keep in step."""

    def add(self, folder: Path, numbers: Sequence[int], version: int, **options: Any) -> None:
        documents = [Document(n, f"text {n} of version {version}") for n in numbers]
        with TextIndex(folder, k=_DIRECTIONS, **options) as index:
            index.add_documents(documents, [tokens(n, version) for n in numbers])

    def remove(self, folder: Path, numbers: Sequence[int]) -> None:
        with TextIndex(folder) as index:
            index.remove(numbers)

    def compact(self, folder: Path) -> None:
        with TextIndex(folder) as index:
            index.compact()

    def contents(self, folder: Path) -> list[Any]:
        with TextIndex(folder) as index:
            known = index.catalogue.get(list(range(100)), index.index.generation)
            return [_vectors(index.index), sorted((n, row.text) for n, row in known.items())]


class _Eyes:
    """A model that sees the tokens themselves."""

    name = fingerprint = "eyes"

    def load(self) -> None: ...

    def encode_queries(self, queries: Any) -> Any:
        return [tokens(0, 0) for _ in queries]

    def encode_documents(self, documents: Any, advance: Any = None) -> Any:
        return list(documents)

    def query_tokens(self, queries: Any) -> Any:
        return [[""] * 2 for _ in queries]


class _Reader:
    """Reads pages of some numbers and one version, each a file of its own."""

    def __init__(self, folder: Path, numbers: Sequence[int], version: int) -> None:
        self.folder = folder
        self._pages = {f"{n}.png": (n, version) for n in numbers}

    def parts(self) -> Iterator[Part]:
        for name, (number, version) in self._pages.items():
            page = Document(name, file=name, fingerprint=f"{version}")
            seen = tokens(number, version)
            yield Part([page], name, f"{version}", lambda _, seen=seen: seen)


class Pages:
    """An index of the pages of a folder, brought up to date with it."""

    def __init__(self) -> None:
        self._files = Path(tempfile.mkdtemp())
        for n in range(_PAGES):
            (self._files / f"{n}.png").touch()

    def add(self, folder: Path, numbers: Sequence[int], version: int, **options: Any) -> None:
        with PageIndex(folder, model=_Eyes(), k=_DIRECTIONS, **options) as index:
            index.update(_Reader(self._files, numbers, version))

    def remove(self, folder: Path, numbers: Sequence[int]) -> None:
        with PageIndex(folder, model=_Eyes()) as index:
            index.remove([f"{n}.png" for n in numbers])

    def compact(self, folder: Path) -> None:
        with PageIndex(folder, model=_Eyes()) as index:
            index.compact()

    def contents(self, folder: Path) -> list[Any]:
        with PageIndex(folder, model=_Eyes()) as index:
            files = [sorted(index.of_file(f"{n}.png").items()) for n in range(_PAGES)]
            return [_vectors(index.index), files]


def _vectors(index: Any) -> list[Any]:
    found = [
        (str(document_id), hashlib.sha256(vector.tobytes()).hexdigest())
        for ids, vectors in index.vectors()
        for document_id, vector in zip(ids, vectors, strict=True)
    ]
    return sorted(found)


KINDS: dict[str, Callable[[], Any]] = {
    "eigenli": lambda: Vectors(EigenLIIndex),
    "single vectors": lambda: Vectors(EigenLISVIndex, keep_tokens="int8"),
    "voyager": lambda: Vectors(EigenLISVIndex, backend="voyager"),
    "sketch": lambda: Vectors(EigenLISVIndex, backend="sketch"),
    "texts": Texts,
    "pages": Pages,
}

# What every kind goes through, again and again: the first change replaces whatever is there.
CHANGES: tuple[tuple[str, Callable[[Any, Path], None]], ...] = (
    ("override", lambda kind, folder: kind.add(folder, range(6), 0, override=True)),
    ("add", lambda kind, folder: kind.add(folder, range(6, 10), 1)),
    ("replace", lambda kind, folder: kind.add(folder, range(2, 5), 2)),
    ("remove", lambda kind, folder: kind.remove(folder, [0, 7])),
    ("compact", lambda kind, folder: kind.compact(folder)),
    ("add many", lambda kind, folder: kind.add(folder, range(10, 30), 3)),
    ("replace most", lambda kind, folder: kind.add(folder, range(3, 20), 4)),
    ("remove some", lambda kind, folder: kind.remove(folder, range(20, 26))),
    ("compact again", lambda kind, folder: kind.compact(folder)),
)


@dataclass
class Report:
    """Counts of what was done to one kind of index, and what was found wrong."""

    kind: str
    kills: int = 0
    acknowledged: int = 0
    deaths_at_calls: int = 0
    failing_calls: int = 0
    full_disks: int = 0
    power_cuts: int = 0
    wrong: list[str] = field(default_factory=list)


class Trial:
    """One kind of index, and what it must hold after each change.

    Parameters
    ----------
    name
        A key of :data:`KINDS`.
    work
        A folder to work in.
    seed
        Seed of all that is left to chance.
    """

    def __init__(self, name: str, work: Path, seed: int = 0) -> None:
        self.kind = KINDS[name]()
        self.report = Report(name)
        self._work = work
        self._chance = random.Random(seed)
        intact = work / "intact" / "index"
        intact.parent.mkdir(parents=True)
        self._states = [self.kind.contents(intact)]
        for number in range(len(CHANGES)):
            self._change(intact, number)
            self._states.append(self.kind.contents(intact))
            shutil.copytree(intact.parent, self._origin(number + 1))
        begin = time.perf_counter()  # not before: what is called first is compiled
        for number in range(len(CHANGES)):
            self._change(intact, number)
        self._seconds = time.perf_counter() - begin

    def _origin(self, number: int) -> Path:
        """Return the folder of an index to which so many changes were made."""
        return self._work / f"after-{number}"

    def _state(self, number: int) -> Any:
        """Return what the index holds after so many changes."""
        return self._states[(number - 1) % len(CHANGES) + 1 if number else 0]

    def _change(self, folder: Path, number: int) -> None:
        CHANGES[number % len(CHANGES)][1](self.kind, folder)

    def check(self, folder: Path, done: int, fault: str) -> int:
        """Check an index after a fault and make the next change; return how many it has now.

        Parameters
        ----------
        folder
            The index.
        done
            Number of changes that were acknowledged; one more may have been made.
        fault
            What has happened, for the report.
        """
        what = f"{fault} at {CHANGES[done % len(CHANGES)][0]!r}"
        try:
            damage = verify(folder) if folder.exists() else []
            if damage:
                self.report.wrong.append(f"{what}: {damage[0]}")
            found = self.kind.contents(folder)
            if found == self._state(done + 1) != self._state(done):
                done += 1
            elif found != self._state(done):
                self.report.wrong.append(f"{what}: neither the state before nor the one after")
                done = len(CHANGES) * (done // len(CHANGES) + 1)  # begin anew
            self._change(folder, done)
            if self.kind.contents(folder) != self._state(done + 1) or verify(folder):
                self.report.wrong.append(f"{what}: the next change was not made well")
        except Exception as error:
            self.report.wrong.append(f"{what}: {error!r}")
            shutil.rmtree(folder, ignore_errors=True)
            return 0
        return done + 1

    # --- faults -------------------------------------------------------------------------------

    def kill(self, times: int) -> None:
        """Kill the process that makes changes, whatever it is doing."""
        folder = self._work / "killed" / "index"
        folder.parent.mkdir()
        done = 0
        for _ in range(times):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                with suppress(BaseException):
                    for number in itertools.count(done):
                        self._change(folder, number)
                        os.write(writing, b".")
                os._exit(1)
            time.sleep(self._chance.uniform(0, _QUICKLY * self._seconds))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            os.close(writing)
            with os.fdopen(reading, "rb") as stream:
                acknowledged = len(stream.read())
            self.report.kills += 1
            self.report.acknowledged += acknowledged
            if not os.WIFSIGNALED(status):
                self.report.wrong.append(f"change {done + acknowledged} failed by itself")
            done = self.check(folder, done + acknowledged, "kill")

    def strike_calls(self, strike: Callable[[], None]) -> int:
        """Strike every change at every system call; return how often."""
        strikes = 0
        for number in range(len(CHANGES)):
            for call in itertools.count(1):
                folder = self._victim(number)
                if not is_struck(partial(self._change, folder, number), call, strike):
                    break
                strikes += 1
                self.check(folder, number, f"{strike.__name__} at call {call}")
        return strikes

    def fill_disk(self) -> None:
        """Let every change meet a disk that takes no larger files."""
        for number in range(len(CHANGES)):
            for size in _FILE_SIZES:
                folder = self._victim(number)

                def change(folder: Path = folder, number: int = number, size: int = size) -> None:
                    with suppress(Exception), largest_file(size):
                        self._change(folder, number)

                in_child(change)
                self.report.full_disks += 1
                self.check(folder, number, f"no file above {size} bytes")

    def cut_power(self, times: int) -> None:
        """Cut the power at random moments between two system calls."""
        folder = self._work / "recorded" / "index"
        folder.parent.mkdir()
        log = self._work / "events"

        def record() -> None:
            recording = Recording(folder, FILE_NAME)
            for number in range(len(CHANGES)):
                self._change(folder, number)
                recording.note(number + 1)
            log.write_bytes(pickle.dumps(recording.events))

        if in_child(record):
            raise RuntimeError("the changes failed while they were recorded")
        events = pickle.loads(log.read_bytes())  # noqa: S301
        moments = sorted(self._chance.choices(range(1, len(events) + 1), k=times))
        disk, done, position = Disk(), 0, 0
        for moment in moments:
            for event in events[position:moment]:
                disk.apply(event)
                done = event[1] if event[0] == "noted" else done
            position = moment
            victim = self._victim(0)
            disk.cut(victim, self._chance)
            self.report.power_cuts += 1
            self.check(victim, done, f"power cut after event {moment}")

    def _victim(self, changes: int) -> Path:
        """Return a fresh copy of an index to which so many changes were made."""
        folder = self._work / "victim"
        shutil.rmtree(folder, ignore_errors=True)
        if changes:
            shutil.copytree(self._origin(changes), folder)
        folder.mkdir(exist_ok=True)
        return folder / "index"


def run(kinds: Sequence[str], kills: int, cuts: int, *, calls: bool, seed: int) -> list[Report]:
    """Do everything to every kind of index; the numbers are for all kinds together."""
    torch.set_num_threads(1)  # a process with other threads cannot be forked
    tqdm.set_lock(threading.RLock())  # by default a lock of all processes, and some are killed
    reports = []
    # Syncing takes most of the time and saves nothing here: power cuts are simulated.
    memory = Path("/dev/shm")
    for kind in kinds:
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as work:
            trial = Trial(kind, Path(work), seed)
            trial.kill(-(-kills // len(kinds)))
            trial.cut_power(-(-cuts // len(kinds)))
            if calls:
                trial.report.deaths_at_calls = trial.strike_calls(die)
                trial.report.failing_calls = trial.strike_calls(fail)
                trial.fill_disk()
        reports.append(trial.report)
        print(json.dumps(asdict(trial.report)), flush=True)
    return reports


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run, print the reports; return 0 if nothing was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--no-calls", action="store_true", help="leave out the single calls")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    reports = run(
        options.kinds, options.kills, options.cuts, calls=not options.no_calls, seed=options.seed
    )
    return 1 if any(report.wrong for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
