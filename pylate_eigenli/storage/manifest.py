"""The manifest: the one file that says which other files, together, are the index.

A commit writes new files under names never used before and then replaces ``manifest.json``,
so that every state of the index is described by exactly one manifest.  Each record of a file
holds its size and the checksum of its header, and the header those of the columns behind it
(:mod:`pylate_eigenli.storage.columns`): whoever trusts the manifest can check all the rest.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..errors import IndexFormatError
from .disk import TEMPORARY_SUFFIX, replace_file

FILE_NAME = "manifest.json"
FORMAT = "pylate-eigenli-index"
VERSION = 1

_SEGMENT_NAME = re.compile(r"segment-\d+\.safetensors")
_DATA_NAME = re.compile(r"(?:segment-\d+(?:\.dead-\d+)?|collection-\d+)\.safetensors")

T = TypeVar("T")


def segment_name(uid: int) -> str:
    """Name of the file of segment ``uid``."""
    return f"segment-{uid:06d}.safetensors"


def dead_name(uid: int, generation: int) -> str:
    """Name of the tombstones that ``generation`` gave segment ``uid``."""
    return f"segment-{uid:06d}.dead-{generation:06d}.safetensors"


def collection_name(generation: int) -> str:
    """Name of the file of collection-wide arrays that ``generation`` wrote."""
    return f"collection-{generation:06d}.safetensors"


@dataclass(frozen=True)
class FileRecord:
    """What a file must be: its name, its size, and the CRC-32 of its header in hexadecimal."""

    file: str
    bytes: int
    crc32: str

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> FileRecord:
        name = _get(body, "file", str)
        if not _DATA_NAME.fullmatch(name):  # also keeps a hostile name inside the folder
            raise ValueError(f"{name!r} is not the name of an index file")
        return cls(name, _get(body, "bytes", int), _get(body, "crc32", str))

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "bytes": self.bytes, "crc32": self.crc32}


@dataclass(frozen=True)
class SegmentRecord:
    """A segment: its file, what it must hold, and the file of its tombstones if it has any."""

    data: FileRecord
    documents: int
    rows: int
    dead: FileRecord | None = None
    dead_count: int = 0

    @property
    def uid(self) -> int:
        """Number of the segment, never given to another one."""
        return int(self.data.file.removeprefix("segment-").removesuffix(".safetensors"))

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SegmentRecord:
        data = FileRecord.from_json(body)
        if not _SEGMENT_NAME.fullmatch(data.file):
            raise ValueError(f"{data.file!r} is not the name of a segment")
        dead = _get_optional(body, "dead", dict)
        return cls(
            data,
            _get(body, "documents", int),
            _get(body, "rows", int),
            None if dead is None else FileRecord.from_json(dead),
            0 if dead is None else _get(dead, "count", int),
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
        """The newest committed state; a folder without a manifest holds an empty index.

        Raises
        ------
        IndexFormatError
            The manifest is damaged, or of a version this library does not read.
        """
        path = folder / FILE_NAME
        try:
            payload = path.read_bytes()
        except FileNotFoundError:
            return cls()
        try:
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
            _get(body, "generation", int),
            _get(body, "next_uid", int),
            _get(body, "meta", dict),
            tuple(
                SegmentRecord.from_json(_typed(segment, dict, "a segment"))
                for segment in _get(body, "segments", list)
            ),
            None if collection is None else FileRecord.from_json(collection),
        )
        if body.pop("checksum") != _checksum(body):
            raise ValueError("its contents do not match its checksum")
        return manifest

    @classmethod
    def successor_of_unreadable(cls, folder: Path) -> Manifest:
        """An empty state numbered past every file of ``folder``, for replacing what is there."""
        numbers = [
            int(number)
            for name in os.listdir(folder)
            if _DATA_NAME.fullmatch(name)
            for number in re.findall(r"\d+", name)
        ]
        return cls(generation=max(numbers, default=0) + 1, next_uid=max(numbers, default=0) + 1)

    def write(self, folder: Path) -> None:
        """Make this the committed state of ``folder``, in one step and durably."""
        replace_file(folder / FILE_NAME, self.to_bytes())

    def to_bytes(self) -> bytes:
        """The contents of ``manifest.json``."""
        body: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "generation": self.generation,
            "next_uid": self.next_uid,
            "meta": self.meta,
            "segments": [segment.to_json() for segment in self.segments],
            "collection": self.collection and self.collection.to_json(),
        }
        return json.dumps({**body, "checksum": _checksum(body)}, indent=1).encode()

    def files(self) -> Iterator[FileRecord]:
        """The records of all files of this state, the manifest itself excepted."""
        for segment in self.segments:
            yield segment.data
            if segment.dead is not None:
                yield segment.dead
        if self.collection is not None:
            yield self.collection


def collect_garbage(folder: Path) -> None:
    """Delete the files that the committed manifest does not name; the writer lock must be held.

    They are what a rolled back or killed writer left, or what a commit has replaced.  A file
    that cannot be deleted (Windows keeps those that a reader has mapped) waits for the next call.
    """
    with suppress(IndexFormatError, OSError):
        used = {record.file for record in Manifest.read(folder).files()}
        for name in os.listdir(folder):
            leftover = _DATA_NAME.fullmatch(name) and name not in used
            if leftover or name == FILE_NAME + TEMPORARY_SUFFIX:
                with suppress(OSError):
                    os.unlink(folder / name)


def _checksum(body: Mapping[str, Any]) -> str:
    # Keys sorted and no spaces: the checksum is that of the contents, however they are laid out.
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"{zlib.crc32(canonical.encode()):08x}"


def _get(body: Mapping[str, Any], key: str, kind: type[T]) -> T:
    return _typed(body[key], kind, f"key {key!r}")


def _get_optional(body: Mapping[str, Any], key: str, kind: type[T]) -> T | None:
    return None if body[key] is None else _get(body, key, kind)


def _typed(value: object, kind: type[T], what: str) -> T:
    if isinstance(value, kind) and not isinstance(value, bool):
        return value
    raise TypeError(f"{what} is {type(value).__name__}, not {kind.__name__}")
