"""A stopped writer leaves the index in the state before or after its transaction."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from benchmarks.strikes import largest_file
from helpers.contents import assert_sound, contents, document_columns

from pylate_eigenli.storage import Store

CHILDREN = Path(__file__).parents[1] / "helpers" / "children.py"


def run_child(function, folder):
    completed = subprocess.run(
        [sys.executable, str(CHILDREN), function, str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


class TestKilledWriter:
    def test_death_at_any_call_leaves_a_committed_state(self, tmp_path):
        strikes = int(run_child("die_everywhere", tmp_path).split()[0])
        assert strikes > 200

    def test_death_at_any_moment_leaves_a_committed_state(self, tmp_path):
        run_child("die_at_random_moments", tmp_path)


class TestFailingDisk:
    def test_an_error_at_any_call_leaves_a_committed_state(self, tmp_path):
        strikes = int(run_child("fail_everywhere", tmp_path).split()[0])
        assert strikes > 200


def add_many(store, remove):
    with store.transaction() as tx:
        tx.remove(remove)
        tx.append(range(50, 900), **document_columns(list(range(850)), [1] * 850))


class TestFullDisk:
    @pytest.mark.parametrize("size", [0, 1, 100, 600, 2000, 20_000])
    def test_the_index_is_unchanged_and_usable_afterwards(self, tmp_path, size):
        store = Store(tmp_path, segment_bytes=30_000)
        with store.transaction() as tx:
            tx.append(range(100), **document_columns(list(range(100)), [1] * 100))
        before, files = contents(store.snapshot), sorted(os.listdir(tmp_path))
        with pytest.raises(OSError, match="File too large"), largest_file(size):
            add_many(store, remove=[3])
        assert contents(store.snapshot) == contents(Store(tmp_path).snapshot) == before
        assert sorted(os.listdir(tmp_path)) == files
        with store.transaction() as tx:
            tx.remove([3])
        assert 3 not in store.snapshot
        assert_sound(store)

    def test_documents_can_be_removed_although_segments_cannot_be_merged(self, tmp_path):
        store = Store(tmp_path, segment_bytes=30_000)
        with store.transaction() as tx:
            tx.append(range(1000), **document_columns(list(range(1000)), [1] * 1000))
        gone = range(0, 1000, 2)
        with largest_file(3000), store.transaction() as tx:
            tx.remove(gone)
        assert list(store.snapshot) == list(Store(tmp_path).snapshot) == list(range(1, 1000, 2))
        assert_sound(store)
        before = store.snapshot.nbytes
        with pytest.raises(OSError, match="File too large"), largest_file(3000):
            store.compact()
        assert_sound(store)
        store.compact()
        assert store.snapshot.nbytes < 0.7 * before

    def test_half_a_change_is_not_committed_if_the_error_is_caught(self, tmp_path):
        def swallow_the_error():
            with store.transaction() as tx, suppress(OSError), largest_file(1000):
                tx.append(range(900), **document_columns(list(range(900)), [1] * 900))

        store = Store(tmp_path, segment_bytes=5000)
        with pytest.raises(RuntimeError, match="one of its writes has failed"):
            swallow_the_error()
        assert len(Store(tmp_path).snapshot) == 0


class TestPowerCut:
    def test_files_are_on_disk_before_their_manifest(self, tmp_path, monkeypatch):
        """Follow what is synced, and check at each rename that nothing is left to sync."""
        synced: set[tuple[int, int]] = set()
        renames = []
        fsync, replace, write = os.fsync, os.replace, os.write

        def identity(status):
            return status.st_dev, status.st_ino

        def following_write(descriptor, payload):
            synced.discard(identity(os.fstat(descriptor)))
            synced.discard(identity(os.stat(tmp_path)))
            return write(descriptor, payload)

        def following_fsync(descriptor):
            fsync(descriptor)
            synced.add(identity(os.fstat(descriptor)))

        def checking_replace(source, target):
            body = json.loads(Path(source).read_bytes())
            names = [Path(source).name]
            for record in [*body["segments"], body["collection"]]:
                names += [part["file"] for part in (record, (record or {}).get("dead")) if part]
            for path in [tmp_path, *(tmp_path / name for name in names)]:
                assert identity(os.stat(path)) in synced, path
            replace(source, target)
            synced.discard(identity(os.stat(tmp_path)))
            renames.append(target)

        monkeypatch.setattr(os, "write", following_write)
        monkeypatch.setattr(os, "fsync", following_fsync)
        monkeypatch.setattr(os, "replace", checking_replace)
        store = Store(tmp_path, segment_bytes=1500)
        for start in range(0, 100, 10):
            with store.transaction() as tx:
                tx.set_collection("start", start)
                numbers = list(range(start, start + 30))
                tx.append(numbers, **document_columns(numbers, [1] * 30))
            assert identity(os.stat(tmp_path)) in synced  # the rename is on disk too
        assert len(renames) == 1 + 10  # that of an empty index comes first
