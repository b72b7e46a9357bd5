"""One writer at a time, and readers that never wait, fail or see half a change."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from helpers.children import keep_writing, state_after
from helpers.contents import assert_sound, contents

from pylate_eigenli.errors import IndexLockedError
from pylate_eigenli.storage import Store
from pylate_eigenli.storage.lock import LOCK_NAME

CHILDREN = Path(__file__).parents[1] / "helpers" / "children.py"


def start_child(function, folder):
    return subprocess.Popen(
        [sys.executable, str(CHILDREN), function, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class TestSecondWriter:
    def test_another_process_is_refused_with_the_name_of_the_writer(self, tmp_path):
        store = Store(tmp_path)
        with start_child("hold_the_lock", tmp_path) as writer:
            assert writer.stdout.readline() == "locked\n"
            message = f"being written by process {writer.pid} on {socket.gethostname()}"
            with pytest.raises(IndexLockedError, match=message), store.transaction():
                pass
            assert len(store.snapshot) == 0
            writer.communicate("go on\n")
        with store.transaction() as tx:
            tx.append(["mine"])
        assert list(store.snapshot) == ["from the other process", "mine"]

    def test_the_lock_ends_with_its_process(self, tmp_path):
        store = Store(tmp_path)
        with start_child("hold_the_lock", tmp_path) as writer:
            writer.stdout.readline()
            writer.kill()
        with store.transaction() as tx:
            tx.append(["mine"])
        assert list(store.snapshot) == ["mine"]
        assert_sound(store)

    def test_a_lock_file_that_was_deleted_while_it_was_opened_locks_nothing(
        self, tmp_path, monkeypatch
    ):
        fcntl = pytest.importorskip("fcntl")
        lock = fcntl.flock

        def too_late(*args):
            (tmp_path / LOCK_NAME).unlink(missing_ok=True)
            lock(*args)

        store = Store(tmp_path)
        monkeypatch.setattr(fcntl, "flock", too_late)
        with pytest.raises(IndexLockedError), store.transaction():
            pass

    @pytest.mark.parametrize("same_object", [True, False])
    def test_the_same_process_is_refused_too(self, tmp_path, same_object):
        store = Store(tmp_path)
        second = store if same_object else Store(tmp_path)
        with store.transaction() as tx:
            message = f"process {os.getpid()}"
            with pytest.raises(IndexLockedError, match=message), second.transaction():
                pass
            tx.append(["a"])
        assert list(store.snapshot) == ["a"]

    def test_an_exception_releases_the_lock(self, tmp_path):
        store = Store(tmp_path)
        with pytest.raises(ZeroDivisionError), store.transaction():
            raise ZeroDivisionError
        with store.transaction() as tx:
            tx.append(["a"])

    def test_a_transaction_starts_from_the_newest_commit(self, tmp_path):
        mine, other = Store(tmp_path), Store(tmp_path)
        assert len(mine.snapshot) == 0
        with other.transaction() as tx:
            tx.append(["a", "b"])
        with mine.transaction() as tx:
            tx.remove(["a"])
        assert list(mine.snapshot) == ["b"]


class TestReaders:
    def test_opening_never_fails_while_another_process_writes(self, tmp_path):
        steps = []
        with start_child("write_a_while", tmp_path) as writer:
            while writer.poll() is None:
                snapshot = Store(tmp_path).snapshot
                if snapshot.generation:
                    steps.append(snapshot.meta["step"])
                    assert contents(snapshot) == state_after(steps[-1])
        assert writer.returncode == 0
        assert steps == sorted(steps)
        assert len(set(steps)) > 10

    def test_refreshing_never_fails_while_another_process_writes(self, tmp_path):
        reader = Store(tmp_path)
        with start_child("write_a_while", tmp_path) as writer:
            while writer.poll() is None:
                if reader.refresh():
                    assert contents(reader.snapshot) == state_after(reader.snapshot.meta["step"])
        reader.refresh()
        assert contents(reader.snapshot) == state_after(99)

    def test_threads_share_a_store_with_its_writer(self, tmp_path):
        store = Store(tmp_path, segment_bytes=1500)
        keep_writing(store, steps=1)
        done, failures = threading.Event(), []

        def read():
            last = 0
            while not done.is_set():
                store.refresh()
                snapshot = store.snapshot
                step = snapshot.meta["step"]
                ids = [i for i, _ in state_after(step)["documents"]]
                if step < last or contents(snapshot) != state_after(step):
                    failures.append(step)
                if snapshot.ids_of(snapshot.locate(ids)) != ids:
                    failures.append(step)
                last = step

        readers = [threading.Thread(target=read) for _ in range(3)]
        for thread in readers:
            thread.start()
        try:
            keep_writing(store, steps=60)
        finally:
            done.set()
            for thread in readers:
                thread.join()
        assert failures == []
