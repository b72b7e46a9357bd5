from __future__ import annotations

import json
from contextlib import suppress

import pytest

from pylate_eigenli.errors import IndexFormatError
from pylate_eigenli.storage.manifest import (
    FileRecord,
    Manifest,
    SegmentRecord,
    checksum,
    collect_garbage,
    collection_name,
    dead_name,
    segment_name,
)

MANIFEST = Manifest(
    generation=7,
    next_uid=4,
    meta={"model": "colbert", "nested": {"k": [1, 2.5, None, "é\n"]}},
    segments=(
        SegmentRecord(FileRecord(segment_name(1), 800, "00000001"), documents=9, rows=20),
        SegmentRecord(
            FileRecord(segment_name(3), 500, "00000002"),
            documents=4,
            rows=0,
            dead=FileRecord(dead_name(3, 6), 120, "00000003"),
            dead_count=2,
        ),
    ),
    collection=FileRecord(collection_name(5), 90, "00000004"),
)


@pytest.fixture
def folder(tmp_path):
    MANIFEST.write(tmp_path)
    return tmp_path


def rewrite(folder, change):
    """Change the body of a manifest and give it the checksum of what it says now."""
    path = folder / "manifest.json"
    body = json.loads(path.read_text())
    del body["checksum"]
    change(body)
    path.write_text(json.dumps({**body, "checksum": checksum(body)}))


class TestReading:
    def test_round_trip(self, folder):
        assert Manifest.read(folder) == MANIFEST

    def test_a_folder_without_a_manifest_is_empty(self, tmp_path):
        assert Manifest.read(tmp_path) == Manifest.read(tmp_path / "nowhere") == Manifest()

    def test_layout_does_not_matter(self, folder):
        rewrite(folder, lambda body: None)
        assert Manifest.read(folder) == MANIFEST

    def test_altered_bytes_are_refused_unless_the_contents_are_equal(self, folder):
        path = folder / "manifest.json"
        intact = path.read_bytes()
        for position in range(len(intact)):
            altered = bytearray(intact)
            altered[position] ^= 0x04
            path.write_bytes(altered)
            with suppress(IndexFormatError):
                assert Manifest.read(folder) == MANIFEST

    def test_altered_contents_are_refused(self, folder):
        path = folder / "manifest.json"
        path.write_text(path.read_text().replace("colbert", "colbart"))
        with pytest.raises(IndexFormatError, match=r"manifest\.json.*do not match its checksum"):
            Manifest.read(folder)

    def test_truncations_are_refused(self, folder):
        path = folder / "manifest.json"
        intact = path.read_bytes()
        for size in range(0, len(intact), 5):
            path.write_bytes(intact[:size])
            with pytest.raises(IndexFormatError, match=r"manifest\.json"):
                Manifest.read(folder)

    @pytest.mark.parametrize("contents", [b"[]", b"3", b"null", b"\xff\xfe", b"[" * 100_000])
    def test_other_json_is_refused(self, folder, contents):
        (folder / "manifest.json").write_bytes(contents)
        with pytest.raises(IndexFormatError, match=r"manifest\.json cannot be read"):
            Manifest.read(folder)

    @pytest.mark.parametrize("key", sorted(json.loads(MANIFEST.to_bytes())))
    def test_a_missing_key_is_named(self, folder, key):
        path = folder / "manifest.json"
        body = json.loads(path.read_text())
        del body[key]
        path.write_text(json.dumps(body))
        with pytest.raises(IndexFormatError, match=f"key '{key}' is missing"):
            Manifest.read(folder)

    @pytest.mark.parametrize(
        ("key", "value", "reason"),
        [
            ("generation", "7", "'generation' is str, not int"),
            ("segments", {}, "'segments' is dict, not list"),
            ("segments", [1], "a segment is int, not dict"),
            ("meta", [], "'meta' is list, not dict"),
            ("version", True, "'version' is bool, not int"),
            ("format", "other", "its format is 'other'"),
        ],
    )
    def test_a_wrong_value_is_named(self, folder, key, value, reason):
        rewrite(folder, lambda body: body.update({key: value}))
        with pytest.raises(IndexFormatError, match=reason):
            Manifest.read(folder)

    def test_a_newer_version_asks_for_an_upgrade(self, folder):
        rewrite(folder, lambda body: body.update(version=2))
        with pytest.raises(
            IndexFormatError, match=r"version 2 and this library reads up to version 1: upgrade"
        ):
            Manifest.read(folder)

    @pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "manifest.json", ""])
    def test_names_outside_the_index_are_refused(self, folder, name):
        rewrite(folder, lambda body: body["collection"].update(file=name))
        with pytest.raises(IndexFormatError, match="is not the name of an index file"):
            Manifest.read(folder)


class TestGarbage:
    def test_only_unused_files_of_the_index_are_deleted(self, folder):
        used = {record.file for record in MANIFEST.files()}
        unused = {segment_name(2), dead_name(3, 5), collection_name(4), "manifest.json.tmp"}
        foreign = {"notes.txt", "model.safetensors", "segment-1.npy"}
        for name in used | unused | foreign:
            (folder / name).touch()
        collect_garbage(folder)
        assert {path.name for path in folder.iterdir()} == used | foreign | {"manifest.json"}

    def test_nothing_is_deleted_while_the_manifest_is_unreadable(self, folder):
        (folder / segment_name(2)).touch()
        (folder / "manifest.json").write_text("{")
        collect_garbage(folder)
        assert (folder / segment_name(2)).exists()

    def test_the_successor_of_an_unreadable_index_has_new_numbers(self, folder):
        for name in (segment_name(12), dead_name(3, 40), "model-99.bin"):
            (folder / name).touch()
        successor = Manifest.successor_of_unreadable(folder)
        assert (successor.generation, successor.next_uid) == (41, 41)
