"""Damage to any file of an index is reported by name, before any of its data is used."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.contents import assert_sound, contents, document_columns

from pylate_eigenli.errors import IndexFormatError
from pylate_eigenli.storage import Store
from pylate_eigenli.storage.manifest import Manifest, _checksum


@pytest.fixture
def folder(tmp_path):
    """An index with a segment, one with tombstones, and a collection."""
    store = Store(tmp_path / "index", segment_bytes=2000)
    with store.transaction() as tx:
        tx.append(range(100), **document_columns(list(range(100)), [1] * 100))
        tx.set_collection("mean", np.arange(4.0))
    with store.transaction() as tx:
        tx.remove([0])
    return store.path


def file_of(folder, kind):
    manifest = Manifest.read(folder)
    records = {
        "segment": manifest.segments[1].data,
        "tombstones": manifest.segments[0].dead,
        "collection": manifest.collection,
    }
    return folder / records[kind].file


KINDS = ["segment", "tombstones", "collection"]


class TestDamagedFiles:
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_truncated_file_is_named_with_both_sizes(self, folder, kind):
        path = file_of(folder, kind)
        size = path.stat().st_size
        path.write_bytes(path.read_bytes()[: size // 2])
        message = f"{path.name} has {size // 2} bytes, but {size} were written"
        with pytest.raises(IndexFormatError, match=message):
            Store(folder).snapshot  # noqa: B018
        (line,) = Store(folder).verify()
        assert message in line

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_missing_file_is_named(self, folder, kind):
        path = file_of(folder, kind)
        path.unlink()
        with pytest.raises(IndexFormatError, match=f"{path.name} is missing"):
            Store(folder).snapshot  # noqa: B018
        assert Store(folder).verify() == [f"{path} is missing"]

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("position", [3, 40, -1], ids=["length", "header", "data"])
    def test_an_altered_file_is_named_before_it_is_used(self, folder, kind, position):
        path = file_of(folder, kind)
        contents_now = bytearray(path.read_bytes())
        contents_now[position] ^= 1
        path.write_bytes(contents_now)
        with pytest.raises(IndexFormatError, match=rf"{path.name}.* altered"):
            contents(Store(folder).snapshot)
        (line,) = Store(folder).verify()
        assert path.name in line

    def test_opening_does_not_read_segments(self, folder):
        path = file_of(folder, "segment")
        contents_now = bytearray(path.read_bytes())
        contents_now[-1] ^= 1
        path.write_bytes(contents_now)
        assert len(Store(folder).snapshot) == 99

    def test_verifying_reports_everything_at_once(self, folder):
        for kind in KINDS:
            file_of(folder, kind).unlink()
        assert len(Store(folder).verify()) == 3

    def test_verifying_reports_the_manifest(self, folder):
        (folder / "manifest.json").write_text("{}")
        (line,) = Store(folder).verify()
        assert "manifest.json cannot be read" in line

    def test_segments_must_match_the_manifest(self, folder):
        for key in ("documents", "rows"):
            body = json.loads((folder / "manifest.json").read_bytes())
            body["segments"][1][key] += 1
            del body["checksum"]
            rewritten = json.dumps({**body, "checksum": _checksum(body)})
            copy = folder.parent / key
            copy.mkdir()
            for path in folder.iterdir():
                (copy / path.name).write_bytes(path.read_bytes())
            (copy / "manifest.json").write_text(rewritten)
            with pytest.raises(IndexFormatError, match="but the manifest has"):
                Store(copy).snapshot  # noqa: B018

    def test_tombstones_must_match_the_manifest(self, folder):
        body = json.loads((folder / "manifest.json").read_bytes())
        body["segments"][0]["dead"]["count"] = 2
        del body["checksum"]
        (folder / "manifest.json").write_text(json.dumps({**body, "checksum": _checksum(body)}))
        with pytest.raises(
            IndexFormatError, match="does not match the manifest, which has 2 tombstones"
        ):
            Store(folder).snapshot  # noqa: B018


class TestWritingToADamagedIndex:
    def test_it_is_refused_and_nothing_is_deleted(self, folder):
        file_of(folder, "segment").unlink()
        before = sorted(path.name for path in folder.iterdir())
        with pytest.raises(IndexFormatError), Store(folder).transaction() as tx:
            tx.clear()
        assert sorted(path.name for path in folder.iterdir()) == before

    @pytest.mark.parametrize("damage", [*KINDS, "manifest"])
    def test_overriding_replaces_it(self, folder, damage):
        if damage == "manifest":
            (folder / "manifest.json").write_text("{")
        else:
            file_of(folder, damage).write_bytes(b"")
        store = Store(folder, override=True)
        with store.transaction() as tx:
            tx.append(["new"])
        assert list(store.snapshot) == ["new"]
        assert_sound(store)
