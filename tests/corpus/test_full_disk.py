"""A disk without a free byte: documents can be removed, and nothing is lost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from pylate_eigenli import EigenLIIndex, TextIndex
from pylate_eigenli.corpus.committing import verify
from pylate_eigenli.corpus.document import Document
from pylate_eigenli.storage.disk import RESERVE_NAME

DOCUMENTS = [Document(f"d{i}", f"text {i} " * 50) for i in range(200)]


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small disk."""
    folder = tmp_path / "disk"
    folder.mkdir()
    commands: list[list[str | Path]]
    commands = [["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder]]
    if request.param == "ext4":
        image = tmp_path / "image"
        image.write_bytes(bytes(8 << 20))
        commands = [["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, folder]]
    with suppress(FileNotFoundError):
        if all(
            subprocess.run(command, capture_output=True).returncode == 0 for command in commands
        ):
            yield folder
            subprocess.run(["umount", "--lazy", folder], check=True)  # mapped files keep it busy
            return
    pytest.skip("only root can mount a small disk")


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "other").open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_documents_can_be_removed_from_a_full_disk(disk: Path) -> None:
    rng = np.random.default_rng(0)
    with TextIndex(disk / "index", k=2) as index:
        index.add_documents(DOCUMENTS, list(rng.normal(size=(200, 8, 16)).astype(np.float32)))
        for number in range(0, 50, 5):
            fill(disk)
            index.remove([f"d{number}", f"d{number + 100}"])
            fill(disk)
            assert verify(index.path) == []
        assert len(index) == 180
        with pytest.raises(Exception, match=r"texts\.sqlite: .* full|No space"):
            index.add_documents(DOCUMENTS, list(rng.normal(size=(200, 80, 16)).astype(np.float32)))
        assert len(index) == 180
        (disk / "other").unlink()
        index.add_documents(DOCUMENTS[:1], [np.eye(16)])
        assert verify(index.path) == []


def test_the_arrays_of_a_collection_can_change_with_every_removal(disk: Path) -> None:
    """The background of an index with idf is as large as the room that is kept."""
    rng = np.random.default_rng(0)
    options = {"k": 3, "idf": 0.5, "show_progress": False}
    with EigenLIIndex(str(disk), "index", **options) as index:
        index.add_documents(range(100), list(rng.normal(size=(100, 4, 128)).astype(np.float32)))
    for number in range(0, 100, 10):
        fill(disk)
        with EigenLIIndex(str(disk), "index", **options) as index:
            index.remove_documents([number])
            assert len(index) == 99 - number // 10
        assert verify(disk / "index") == []


def test_the_room_to_remove_is_kept_from_the_first_documents_on(tmp_path: Path) -> None:
    with TextIndex(tmp_path / "index", k=2) as index:
        index.add_documents(DOCUMENTS[:2], [np.eye(16)] * 2)
        reserve = index.path / RESERVE_NAME
        before = reserve.stat()
        index.add_documents(DOCUMENTS[2:3], [np.eye(16)])
        assert reserve.stat() == before
        index.remove(["d0"])
        assert reserve.stat().st_size == before.st_size >= 128 << 10
