"""Column files: named arrays in one file, written once and memory-mapped.

The files are plain safetensors, which any reader of that format opens.  A chain of checksums
protects them: the manifest holds the CRC-32 of a file's header, and the metadata of the header
holds the CRC-32 of every column.  Opening a file reads its header only, and using a column reads
this column only, but a reader never gets an altered byte.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from ..errors import IndexFormatError
from .disk import open_file, write_file
from .manifest import FileRecord

Array: TypeAlias = NDArray[Any]

DTYPES: Mapping[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
"""The dtypes of columns, by their safetensors names."""

_CHECKSUMS = "crc32"
_PREFIX_BYTES = 8  # the length of the header, as a little-endian integer
_MAX_HEADER = 1 << 20  # bytes; a column takes a hundred

# A map does not need its file descriptor, but before Python 3.13 it keeps one open.
_MAP_OPTIONS: dict[str, Any] = {"access": mmap.ACCESS_READ}
if sys.version_info >= (3, 13) and sys.platform != "win32":
    _MAP_OPTIONS["trackfd"] = False


def storable(array: object, what: str) -> Array:
    """Return a C-contiguous little-endian NumPy array; ``what`` names it in error messages."""
    checked = np.asarray(array, order="C")
    if checked.dtype.newbyteorder("<") not in DTYPES.values():
        supported = ", ".join(dtype.name for dtype in DTYPES.values())
        raise ValueError(f"{what} has dtype {checked.dtype}, which cannot be stored ({supported})")
    return checked.astype(checked.dtype.newbyteorder("<"), copy=False)


def write_columns(path: Path, columns: Mapping[str, Array]) -> FileRecord:
    """Write storable arrays to ``path``, and return when they are on disk.

    safetensors aligns each column to its dtype, so a reader can use the mapped memory directly.
    """
    checksums = {name: _crc32(column.data) for name, column in columns.items()}
    # One metadata entry, because safetensors does not fix the order of several.
    payload = safetensors.numpy.save(dict(columns), metadata={_CHECKSUMS: json.dumps(checksums)})
    header_bytes = _PREFIX_BYTES + int.from_bytes(payload[:_PREFIX_BYTES], "little")
    if header_bytes > _MAX_HEADER:
        raise ValueError(f"the names of {len(columns):,} columns do not fit into one file")
    write_file(path, payload)
    return FileRecord(path.name, len(payload), _crc32(memoryview(payload)[:header_bytes]))


class _Location(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    stop: int
    crc32: str


class ColumnFile:
    """A memory-mapped file of columns, with the size and checksum that the manifest has.

    Raises
    ------
    FileNotFoundError
        The file does not exist; a writer may have deleted it after a commit.
    IndexFormatError
        The file is truncated or altered.
    """

    def __init__(self, folder: Path, record: FileRecord) -> None:
        self.path = folder / record.file
        with open_file(self.path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != record.bytes or size < _PREFIX_BYTES:
                raise IndexFormatError(
                    f"{self.path} has {size} bytes, but {record.bytes} were written: "
                    "it is truncated or altered"
                )
            self._map = memoryview(mmap.mmap(stream.fileno(), 0, **_MAP_OPTIONS))
        self._locations = self._read_header(record)
        self._verified: dict[str, Array] = {}

    def _read_header(self, record: FileRecord) -> dict[str, _Location]:
        length = int.from_bytes(self._map[:_PREFIX_BYTES], "little")
        data_start = _PREFIX_BYTES + length
        if length > _MAX_HEADER:
            raise IndexFormatError(f"the header of {self.path} has {length:,} bytes: it is altered")
        if _crc32(self._map[:data_start]) != record.crc32:
            raise IndexFormatError(f"the header of {self.path} is altered: its checksum is wrong")
        try:
            header = json.loads(bytes(self._map[_PREFIX_BYTES:data_start]))
            checksums = json.loads(header.pop("__metadata__")[_CHECKSUMS])
            return {
                name: self._location(entry, data_start, checksums[name])
                for name, entry in header.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise IndexFormatError(f"the header of {self.path} is wrong: {error!r}") from error

    def _location(self, entry: Mapping[str, Any], data_start: int, crc32: str) -> _Location:
        start, stop = (data_start + int(offset) for offset in entry["data_offsets"])
        dtype, shape = DTYPES[entry["dtype"]], tuple(int(length) for length in entry["shape"])
        fits = data_start <= start <= stop <= len(self._map) and min(shape, default=0) >= 0
        if not fits or stop - start != dtype.itemsize * math.prod(shape):
            raise ValueError(f"{dtype}{list(shape)} is not from {start} to {stop}")
        return _Location(dtype, shape, start, stop, crc32)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._locations)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a column, from the header."""
        return self._locations[name].shape

    def dtype(self, name: str) -> np.dtype[Any]:
        """Return the dtype of a column, from the header."""
        return self._locations[name].dtype

    def read(self, name: str) -> Array:
        """Return a mapped, read-only column.  The first call verifies its checksum."""
        if name not in self._verified:  # two threads may verify it twice, which is harmless
            if self._is_altered(name):
                raise IndexFormatError(
                    f"column {name!r} of {self.path} is altered: its checksum is wrong"
                )
            location = self._locations[name]
            self._verified[name] = np.ndarray(
                location.shape, location.dtype, buffer=self._map, offset=location.start
            )
        return self._verified[name]

    def altered(self) -> list[str]:
        """Read all columns again, and return the names of those with a wrong checksum."""
        return [name for name in self._locations if self._is_altered(name)]

    def _is_altered(self, name: str) -> bool:
        location = self._locations[name]
        return _crc32(self._map[location.start : location.stop]) != location.crc32


def _crc32(contents: memoryview) -> str:
    return f"{zlib.crc32(contents):08x}"
