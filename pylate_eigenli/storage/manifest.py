"""The manifest: the file that lists all files of one committed state of an index.

A commit writes files under new names and then replaces ``manifest.json``, so every state has
exactly one manifest.  The manifest holds the size of each file and the checksum of its header; the
header holds the checksums of the columns (:mod:`pylate_eigenli.storage.columns`).  A correct
manifest is therefore enough to verify all other files.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..errors import IndexFormatError
from .disk import TEMPORARY_SUFFIX, open_file, replace_file

FILE_NAME = "manifest.json"
FORMAT = "pylate-eigenli-index"
VERSION = 1

_LARGEST = 2**53  # larger counts are forged, and SQLite has no numbers above 2**63
_MAX_BYTES = 64 << 20  # of the manifest: an index of terabytes has a few

_SEGMENT_NAME = re.compile(r"segment-\d+\.safetensors")
_DATA_NAME = re.compile(r"(?:segment-\d+(?:\.dead-\d+)?|collection-\d+)\.safetensors")

T = TypeVar("T")


def segment_name(uid: int) -> str:
    """Return the file name of segment ``uid``."""
    return f"segment-{uid:06d}.safetensors"


def dead_name(uid: int, generation: int) -> str:
    """Return the file name of the tombstones of segment ``uid``, written by ``generation``."""
    return f"segment-{uid:06d}.dead-{generation:06d}.safetensors"


def collection_name(generation: int) -> str:
    """Return the file name of the collection arrays, written by ``generation``."""
    return f"collection-{generation:06d}.safetensors"


@dataclass(frozen=True)
class FileRecord:
    """Name and size of a file, and the CRC-32 of its header in hexadecimal."""

    file: str
    bytes: int
    crc32: str

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> FileRecord:
        name = _get(body, "file", str)
        if not _DATA_NAME.fullmatch(name):  # a path outside the folder is refused too
            raise ValueError(f"{name!r} is not the name of an index file")
        return cls(name, _count(body, "bytes"), _get(body, "crc32", str))

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "bytes": self.bytes, "crc32": self.crc32}


@dataclass(frozen=True)
class SegmentRecord:
    """File of a segment, its number of documents and rows, and the file of its tombstones."""

    data: FileRecord
    documents: int
    rows: int
    dead: FileRecord | None = None
    dead_count: int = 0

    @property
    def uid(self) -> int:
        """Number of the segment, which no other segment ever gets."""
        return int(self.data.file.removeprefix("segment-").removesuffix(".safetensors"))

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SegmentRecord:
        data = FileRecord.from_json(body)
        if not _SEGMENT_NAME.fullmatch(data.file):
            raise ValueError(f"{data.file!r} is not the name of a segment")
        dead = _get_optional(body, "dead", dict)
        return cls(
            data,
            _count(body, "documents"),
            _count(body, "rows"),
            None if dead is None else FileRecord.from_json(dead),
            0 if dead is None else _count(dead, "count"),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            **self.data.to_json(),
            "documents": self.documents,
            "rows": self.rows,
            "dead": self.dead and {**self.dead.to_json(), "count": self.dead_count},
        }


@dataclass(frozen=True)
class Manifest:
    """One committed state of an index; the default is the state before the first commit."""

    generation: int = 0
    next_uid: int = 1
    meta: Mapping[str, Any] = field(default_factory=dict)
    segments: tuple[SegmentRecord, ...] = ()
    collection: FileRecord | None = None

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Return the newest committed state; a folder without any files is an empty index.

        Raises
        ------
        IndexFormatError
            The manifest is damaged, or has a version that this library cannot read.
        """
        path = folder / FILE_NAME
        try:
            with open_file(path) as file:
                payload = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            lost = sorted(name for name in _names(folder) if _DATA_NAME.fullmatch(name))
            if not lost:
                return cls()
            if path.exists():  # the first writer has just made it
                return cls.read(folder)
            raise IndexFormatError(
                f"{path} is missing, but there is {lost[0]}: restore it, or start again with "
                "override=True"
            ) from None
        try:
            if len(payload) > _MAX_BYTES:
                raise ValueError(f"it has more than {_MAX_BYTES >> 20} MB")
            body = json.loads(payload)
            return cls._from_json(_typed(body, dict, "the manifest"))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
            raise IndexFormatError(f"{path} cannot be read: {reason}") from error

    @classmethod
    def _from_json(cls, body: dict[str, Any]) -> Manifest:
        if body["format"] != FORMAT:
            raise ValueError(f"its format is {body['format']!r}, not {FORMAT!r}")
        version = _get(body, "version", int)
        if version > VERSION:
            raise ValueError(
                f"it has format version {version} and this library reads up to version {VERSION}: "
                "upgrade with `pip install -U pylate-eigenli`"
            )
        collection = _get_optional(body, "collection", dict)
        manifest = cls(
            _count(body, "generation"),
            _count(body, "next_uid"),
            _get(body, "meta", dict),
            tuple(
                SegmentRecord.from_json(_typed(segment, dict, "a segment"))
                for segment in _get(body, "segments", list)
            ),
            None if collection is None else FileRecord.from_json(collection),
        )
        names = [record.file for record in manifest.files()]
        if len(set(names)) < len(names):
            raise ValueError("it names a file twice")
        if any(segment.uid >= manifest.next_uid for segment in manifest.segments):
            raise ValueError("the number of the next segment is taken")
        if body.pop("checksum") != checksum(body):
            raise ValueError("its contents do not match its checksum")
        return manifest

    @classmethod
    def successor_of_unreadable(cls, folder: Path) -> Manifest:
        """Return an empty state with new file numbers, to replace a damaged index."""
        numbers = [
            int(number)
            for name in _names(folder)
            if _DATA_NAME.fullmatch(name)
            for number in re.findall(r"\d+", name)
        ]
        return cls(generation=max(numbers, default=0) + 1, next_uid=max(numbers, default=0) + 1)

    def write(self, folder: Path) -> None:
        """Commit this state to ``folder``, atomically and durably."""
        replace_file(folder / FILE_NAME, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the contents of ``manifest.json``."""
        body: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "generation": self.generation,
            "next_uid": self.next_uid,
            "meta": self.meta,
            "segments": [segment.to_json() for segment in self.segments],
            "collection": self.collection and self.collection.to_json(),
        }
        return json.dumps({**body, "checksum": checksum(body)}, indent=1).encode()

    def files(self) -> Iterator[FileRecord]:
        """Yield the records of all files of this state except the manifest."""
        for segment in self.segments:
            yield segment.data
            if segment.dead is not None:
                yield segment.dead
        if self.collection is not None:
            yield self.collection


def holds_index(path: str | Path) -> bool:
    """Return whether there is an index in a folder, be it damaged."""
    try:
        return Manifest.read(Path(path)).generation > 0
    except IndexFormatError:
        return True
    except NotADirectoryError:
        return False


def collect_garbage(folder: Path, needed: Iterable[str] = ()) -> None:
    """Delete all files that neither the committed manifest names nor the caller, who has the lock.

    These are leftovers of a failed or killed writer, or files that a commit has replaced.  If a
    file cannot be deleted (on Windows, because a reader maps it), a later call deletes it.
    """
    with suppress(IndexFormatError, OSError):
        used = {record.file for record in Manifest.read(folder).files()}.union(needed)
        for name in os.listdir(folder):
            leftover = _DATA_NAME.fullmatch(name) and name not in used
            if leftover or name == FILE_NAME + TEMPORARY_SUFFIX:
                with suppress(OSError):
                    os.unlink(folder / name)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def checksum(body: Mapping[str, Any]) -> str:
    # Sorted keys without spaces make the checksum independent of the layout of the file.
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"{zlib.crc32(canonical.encode()):08x}"


def _get(body: Mapping[str, Any], key: str, kind: type[T]) -> T:
    return _typed(body[key], kind, f"key {key!r}")


def _get_optional(body: Mapping[str, Any], key: str, kind: type[T]) -> T | None:
    return None if body[key] is None else _get(body, key, kind)


def _count(body: Mapping[str, Any], key: str) -> int:
    number = _get(body, key, int)
    if not 0 <= number < _LARGEST:
        raise ValueError(f"key {key!r} is {number}, not a number of things")
    return number


def _typed(value: object, kind: type[T], what: str) -> T:
    if isinstance(value, kind) and not isinstance(value, bool):
        return value
    raise TypeError(f"{what} is {type(value).__name__}, not {kind.__name__}")
