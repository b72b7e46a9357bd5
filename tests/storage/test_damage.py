"""Damage to any file of an index is reported by name, before any of its data is used."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace

import numpy as np
import pytest
from helpers.contents import assert_sound, contents, document_columns

from pylate_eigenli.errors import IndexFormatError
from pylate_eigenli.storage import Store
from pylate_eigenli.storage.columns import ColumnFile, write_columns
from pylate_eigenli.storage.manifest import Manifest, checksum, segment_name


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
            rewritten = json.dumps({**body, "checksum": checksum(body)})
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
        (folder / "manifest.json").write_text(json.dumps({**body, "checksum": checksum(body)}))
        with pytest.raises(
            IndexFormatError, match="does not match the manifest, which has 2 tombstones"
        ):
            Store(folder).snapshot  # noqa: B018


class TestALostManifest:
    def test_is_no_empty_index_and_nothing_is_written_over(self, folder):
        reader = Store(folder).snapshot
        before = contents(reader)
        (folder / "manifest.json").unlink()
        for use in (
            lambda: Store(folder).snapshot,
            lambda: Store(folder).compact(),
            lambda: Store(folder, override=False).transaction().__enter__(),
        ):
            with pytest.raises(IndexFormatError, match=r"manifest.json is missing, but there is"):
                use()
        (line,) = Store(folder).verify()
        assert "manifest.json is missing" in line
        store = Store(folder, override=True)
        with store.transaction() as tx:
            tx.append(range(900), **document_columns(list(range(900)), [1] * 900))
        assert contents(reader) == before
        assert_sound(store)

    def test_is_told_from_a_first_writer_that_was_killed(self, tmp_path):
        def killed():
            with Store(tmp_path, segment_bytes=100).transaction() as tx:
                tx.append(range(100), **document_columns(list(range(100)), [1] * 100))
                assert list(tmp_path.glob("segment-*"))
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pylate_eigenli.storage.store.collect_garbage", lambda folder: None)
            with pytest.raises(KeyboardInterrupt):
                killed()
        assert len(Store(tmp_path).snapshot) == 0
        with Store(tmp_path).transaction() as tx:
            tx.append(["a"])
        assert list(Store(tmp_path).snapshot) == ["a"]


class TestLinks:
    @pytest.mark.parametrize("kind", ["symlink", "hard link"])
    def test_are_never_written_through(self, tmp_path, kind):
        """A folder from somebody else may hold links with the names of the next files."""
        victim, folder = tmp_path / "victim", tmp_path / "index"
        victim.write_text("precious")
        with Store(folder).transaction() as tx:
            tx.append([1])
        for name in (
            *("segment-000002.safetensors", "segment-000001.dead-000002.safetensors"),
            *("collection-000002.safetensors", "manifest.json.tmp", "writer.json"),
        ):
            if kind == "symlink":
                (folder / name).symlink_to(victim)
            else:
                (folder / name).hardlink_to(victim)
        with Store(folder).transaction() as tx:
            tx.append([2, 3])
            tx.set_collection("mean", np.zeros(3))
        assert victim.read_text() == "precious"
        assert_sound(Store(folder))

    def test_to_another_file_are_no_lock(self, tmp_path):
        (tmp_path / "victim").write_text("precious")
        (tmp_path / "index").mkdir()
        (tmp_path / "index" / "writer.lock").symlink_to(tmp_path / "victim")
        with pytest.raises(IndexFormatError, match=r"writer.lock is not a file"):
            Store(tmp_path / "index").compact()
        assert (tmp_path / "victim").read_text() == "precious"


def instead_of(path, kind):
    """Put something that is not a file in the place of a file."""
    path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        socket.socket(socket.AF_UNIX).bind(str(path))


class TestWhatIsNotAFile:
    @pytest.mark.parametrize("kind", ["folder", "loop", "pipe", "device", "socket"])
    @pytest.mark.parametrize("file", ["manifest", *KINDS])
    def test_is_named_when_opened_and_verified(self, folder, file, kind, monkeypatch):
        monkeypatch.chdir(folder)  # the names of sockets are short
        path = folder / "manifest.json" if file == "manifest" else file_of(folder, file)
        instead_of(path.relative_to(folder) if kind == "socket" else path, kind)
        with pytest.raises(IndexFormatError, match=f"{path.name} is not a file"):
            Store(folder).snapshot  # noqa: B018
        (line,) = Store(folder).verify()
        assert f"{path} is not a file" in line

    def test_is_missing_if_it_is_a_link_to_nothing(self, folder):
        (folder / "manifest.json").unlink()
        (folder / "manifest.json").symlink_to("nowhere")
        with pytest.raises(IndexFormatError, match=r"manifest.json is missing, but there is"):
            Store(folder).snapshot  # noqa: B018

    @pytest.mark.parametrize(
        ("name", "override"),
        [("manifest.json", True)]
        + [(name, o) for name in ("manifest.json.tmp", "segment") for o in (False, True)],
    )
    def test_is_named_where_a_folder_is_in_the_way_of_a_writer(self, folder, name, override):
        if name == "segment":
            name = segment_name(Manifest.read(folder).next_uid)
        instead_of(folder / name, "folder")
        before = {path.name for path in folder.iterdir()}
        store = Store(folder, override=override)
        with (
            pytest.raises(IndexFormatError, match=rf"{name} is not a file; remove it"),
            store.transaction() as tx,
        ):
            tx.append([1000], **document_columns([1000], [1]))
        assert before <= {path.name for path in folder.iterdir()}

    @pytest.mark.parametrize("kind", ["folder", "loop", "pipe", "device"])
    def test_is_no_lock(self, folder, kind):
        instead_of(folder / "writer.lock", kind)
        with pytest.raises(IndexFormatError, match=r"writer.lock is not a file; remove it"):
            Store(folder).compact()
        assert Store(folder).verify() == []


class TestForgedFiles:
    """Files with correct checksums, written by somebody who knows how."""

    def test_a_manifest_of_gigabytes_is_not_read(self, folder):
        os.truncate(folder / "manifest.json", 1 << 40)
        with pytest.raises(
            IndexFormatError, match=r"manifest.json cannot be read: it has more than"
        ):
            Store(folder).snapshot  # noqa: B018
        assert "it has more than" in Store(folder).verify()[0]

    def test_a_header_of_megabytes_is_not_read(self, folder):
        manifest = Manifest.read(folder)
        record = manifest.segments[1].data
        with (folder / record.file).open("r+b") as file:
            file.write((2 << 20).to_bytes(8, "little"))
            file.truncate(3 << 20)
        data = replace(record, bytes=3 << 20)
        segments = [manifest.segments[0], replace(manifest.segments[1], data=data)]
        replace(manifest, segments=tuple(segments)).write(folder)
        with pytest.raises(IndexFormatError, match=rf"{record.file} has 2,097,152 bytes"):
            Store(folder).snapshot  # noqa: B018
        with pytest.raises(ValueError, match="names of 20,000 columns do not fit"):
            write_columns(folder / "new", {f"column {i}": np.zeros(1) for i in range(20_000)})

    @pytest.fixture
    def forge(self, folder):
        def forge(name, array):
            manifest = Manifest.read(folder)
            record = manifest.segments[1]
            file = ColumnFile(folder, record.data)
            columns = {n: np.array(file.read(n)) for n in file.names}
            if array is None:
                del columns[name]
            else:
                columns[name] = array(columns[name]) if callable(array) else array
            data = write_columns(folder / record.data.file, columns)
            segments = list(manifest.segments)
            segments[1] = replace(record, data=data)
            replace(manifest, segments=tuple(segments)).write(folder)
            return Store(folder)

        return forge

    @pytest.mark.parametrize(
        "offsets",
        [
            lambda offsets: offsets + 1,
            lambda offsets: offsets * 1000,
            lambda offsets: -offsets,
            lambda offsets: np.roll(offsets, 3),
            lambda offsets: offsets * 2**60,
            lambda offsets: np.where(np.arange(len(offsets)) == 3, 2**62, offsets),
        ],
    )
    @pytest.mark.parametrize("name", ["offsets", "id.offsets"])
    def test_offsets_rise_from_zero_to_the_number_of_rows(self, forge, name, offsets):
        store = forge(name, offsets)
        with pytest.raises(IndexFormatError, match=f"column '{name}' of .* does not rise from 0"):
            contents(store.snapshot)

    @pytest.mark.parametrize(
        ("name", "array"),
        [
            ("offsets", lambda offsets: offsets.astype(np.int32)),
            ("offsets", lambda offsets: offsets.astype(np.uint64)),
            ("offsets", lambda offsets: offsets[:-1]),
            ("id.offsets", lambda offsets: offsets[:, None]),
            ("id.offsets", None),
            ("id.text", None),
            ("id.text", lambda text: text.astype(np.int16)),
            ("id.is_integer", lambda flags: flags[:3]),
            ("id.is_integer", lambda flags: flags.astype(np.int8)),
            ("document.code", lambda code: code[:-1]),
            ("row.token", lambda token: token[:-1]),
            ("other", np.zeros(3)),
        ],
    )
    def test_columns_have_the_type_that_readers_expect(self, forge, name, array):
        store = forge(name, array)
        with pytest.raises(IndexFormatError, match=name):
            store.snapshot  # noqa: B018


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
