"""One array that holds a JSON header and the bytes of a library's own format.

The array starts with the length of the header. The library's bytes can fill most of the memory, so
neither writing nor reading copies them a second time.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_LENGTH_BYTES = 8
_ALIGNMENT = 64  # of the library's bytes, relative to the array


def write_blob(header: Mapping[str, Any], save: Callable[[BinaryIO], Any]) -> NDArray[np.uint8]:
    """Return the header followed by the bytes that ``save`` writes to a stream.

    Examples
    --------
    >>> blob = write_blob({"dim": 3}, lambda stream: stream.write(b"body"))
    >>> header, body = read_blob(blob)
    >>> header, body.tobytes()
    ({'dim': 3}, b'body')
    """
    text = json.dumps(header).encode()
    text += b" " * (-(_LENGTH_BYTES + len(text)) % _ALIGNMENT)
    stream = io.BytesIO()
    stream.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
    save(stream)
    return np.frombuffer(stream.getbuffer(), np.uint8)


def read_blob(blob: NDArray[np.uint8]) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """Return the header and a view of the bytes that follow it."""
    begin = _LENGTH_BYTES + int.from_bytes(blob[:_LENGTH_BYTES].tobytes(), "little")
    return json.loads(blob[_LENGTH_BYTES:begin].tobytes()), blob[begin:]


class ByteStream:
    """An array as a file without seek."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data = memoryview(data.data)
        self._position = 0

    def read(self, size: int) -> bytes:
        part = self._data[self._position : self._position + size]
        self._position += len(part)
        return bytes(part)

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return False

    def seek(self, position: int) -> None:
        raise io.UnsupportedOperation("seek")
