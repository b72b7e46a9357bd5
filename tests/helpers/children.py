"""Processes that tests start, and kill or let run.

Run as a script, with the name of one of the functions and a folder.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    # Storage needs NumPy and safetensors only.  The package without what its ``__init__`` imports
    # (torch above all) is quick to start, small to fork, and proves it.
    package = importlib.util.find_spec("pylate_eigenli")
    sys.modules["pylate_eigenli"] = importlib.util.module_from_spec(package)
    tests = Path(__file__).parents[1]
    sys.path[:0] = [str(tests), str(tests.parent / "examples")]

import numpy as np
from benchmarks.strikes import die, fail, is_struck
from helpers.contents import Contents, assert_sound, contents, document_columns

from pylate_eigenli.storage import Store

if __name__ == "__main__":
    assert "torch" not in sys.modules

SEGMENT_BYTES = 1500


def small_store(folder: Path) -> Store:
    return Store(folder, segment_bytes=SEGMENT_BYTES)


def numbered(tx, start: int, stop: int) -> None:
    numbers = list(range(start, stop))
    tx.append(numbers, **document_columns(numbers, [n % 4 for n in numbers]))


# --------------------------------------------------------------------------------------
# Death or failure at every call.  The transactions below take every path a writer has.


def first(tx):
    tx.meta["name"] = "first"
    tx.set_collection("mean", np.arange(3.0))
    numbered(tx, 0, 5)


def several_segments(tx):
    numbered(tx, 5, 90)


def small_addition(tx):
    numbered(tx, 90, 91)


def merging_addition(tx):
    numbered(tx, 91, 93)


def replacement(tx):
    tx.meta["name"] = "replacement"
    tx.set_collection("mean", np.arange(2.0))
    tx.remove([7, 40])
    numbered(tx, 20, 23)


def automatic_compaction(tx):
    tx.remove([n for n in range(90) if n % 3 and n not in (7, 40)])


def tombstones(tx):
    tx.remove([0, 90])


def explicit_compaction(tx):
    tx.compact()


def override(tx):
    tx.clear()
    tx.append(["only"], documents={"other": np.ones((1, 2), dtype=np.float16)})


def emptying(tx):
    tx.remove(["only"])


TRANSACTIONS = (
    first, several_segments, small_addition, merging_addition, replacement,
    automatic_compaction, tombstones, explicit_compaction, override, emptying,
)  # fmt: skip


def run(folder: Path, transaction: Callable) -> None:
    with small_store(folder).transaction() as tx:
        transaction(tx)


def strike_everywhere(folder: Path, strike: Callable) -> None:
    """Strike a writer at every call of every transaction, and check what it leaves."""
    os.fsync = lambda descriptor: None  # what it saves, the death of a process does not lose
    intact, victim = folder / "intact", folder / "victim"
    strikes = undone = 0
    for transaction in TRANSACTIONS:
        before = contents(small_store(intact).snapshot)
        origin = folder / f"before-{transaction.__name__}"
        if intact.exists():
            shutil.copytree(intact, origin)
        run(intact, transaction)
        after = contents(small_store(intact).snapshot)
        for call in itertools.count(1):
            shutil.rmtree(victim, ignore_errors=True)
            if origin.exists():
                shutil.copytree(origin, victim)
            if not is_struck(partial(run, victim, transaction), call, strike):
                break
            found = contents(small_store(victim).snapshot)
            assert found in (before, after), f"{transaction.__name__}, call {call}"
            check_that_writing_goes_on(victim, found)
            strikes += 1
            undone += found == before
        assert contents(small_store(victim).snapshot) == after
        assert_sound(small_store(victim))
    print(f"{strikes} strikes, {undone} of them before the commit")


def die_everywhere(folder: Path) -> None:
    strike_everywhere(folder, die)


def fail_everywhere(folder: Path) -> None:
    strike_everywhere(folder, fail)


def check_that_writing_goes_on(folder: Path, found: Contents) -> None:
    store = small_store(folder)
    with store.transaction() as tx:
        tx.meta["survivor"] = True
    assert contents(store.snapshot) == {**found, "meta": {**found["meta"], "survivor": True}}
    assert_sound(store)
    with store.transaction() as tx:
        tx.clear()
        numbered(tx, 0, 50)
    assert list(store.snapshot) == list(range(50))
    assert_sound(store)


# --------------------------------------------------------------------------------------
# A writer that goes on and on.  Its n-th transaction adds a document and removes an older
# one, and sets meta to n: a reader can tell from meta what it has to find.


def state_after(step: int) -> Contents:
    steps = range(max(0, step - 20), step + 1)
    values = [(f"document {n}", {"code": [n, -n], "token": [[float(n)]] * (n % 4)}) for n in steps]
    return {"meta": {"step": step}, "collection": {"sum": step}, "documents": values}


def keep_writing(store: Store, steps: int = sys.maxsize) -> None:
    for _ in range(steps):
        step = store.snapshot.meta.get("step", -1) + 1
        with store.transaction() as tx:
            tx.meta["step"] = step
            tx.set_collection("sum", np.int64(step))
            tx.append([f"document {step}"], **document_columns([step], [step % 4]))
            if step > 20:
                tx.remove([f"document {step - 21}"])
            if step % 10 == 9:
                tx.compact()


def write_a_while(folder: Path) -> None:
    keep_writing(small_store(folder), steps=100)


def die_at_random_moments(folder: Path) -> None:
    """Kill the writer a dozen times, whatever it is doing, and check what it leaves."""
    chance = random.Random(0)
    index = folder / "index"
    last = -1
    for _ in range(12):
        child = os.fork()
        if child == 0:
            keep_writing(small_store(index))
        time.sleep(chance.uniform(0.02, 0.3))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        snapshot = small_store(index).snapshot
        step = snapshot.meta.get("step", -1)
        assert step >= last
        if step >= 0:
            assert contents(snapshot) == state_after(step)
        keep_writing(small_store(index), steps=1)
        last = step + 1
        assert contents(small_store(index).snapshot) == state_after(last)
        assert_sound(small_store(index))
    print(f"{last} transactions")


# --------------------------------------------------------------------------------------


def hold_the_lock(folder: Path) -> None:
    """Write, say so, and wait to be told to go on."""
    with small_store(folder).transaction() as tx:
        tx.append(["from the other process"])
        print("locked", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
