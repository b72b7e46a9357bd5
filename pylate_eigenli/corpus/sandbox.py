"""A child process that opens what others have written: texts, PDFs, images, large requests.

A few bytes of PDF can take all memory or never end, and so can files for any other parser. The
child has limits of both. A file that exceeds one is named and left out; the next file gets a new
child. The child lives as long as it behaves, so a file costs no more than a message.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

MEMORY = 2 << 30
SECONDS = 60.0
"""Of one page, or of the text of one file."""
_NO_MEMORY = "no memory"
_GRACE = 10  # seconds after which the child ends itself, if the parent has died
# Not with -m, which would import modules of the working folder, whatever lies there.
_PROGRAM = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    f"from {__name__} import _main; _main(sys.argv[1], int(sys.argv[2]))"
)


class SandboxError(ValueError):
    """The child process had to be ended, or ended itself."""


class Sandbox:
    """Calls methods of a class in a child process; threads take turns.

    Parameters
    ----------
    module
        The module of the class, which is called ``Answers``. Its methods take a path or bytes, and
        options, and return JSON values and bytes.
    seconds
        Time for one call; by default :data:`SECONDS`.
    """

    def __init__(self, module: str = __name__, seconds: float | None = None) -> None:
        self._module = module
        self._seconds = seconds
        self._turn = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    def call(self, name: str, source: Path | bytes, **options: Any) -> tuple[dict[str, Any], bytes]:
        """Return the answer to a request: JSON values, and bytes.

        Raises
        ------
        SandboxError
            The input takes too much time or memory, or crashes its reader.
        ValueError
            The input cannot be read for another reason.
        """
        seconds = self._seconds or SECONDS
        request = {"call": name, "seconds": seconds, "path": None, "bytes": 0, **options}
        if isinstance(source, bytes):
            request["bytes"] = len(source)
        else:
            request["path"], source = str(source.absolute()), b""
        with self._turn:
            child = self._started()
            assert child.stdin is not None
            assert child.stdout is not None
            late = threading.Event()

            def end() -> None:
                late.set()
                child.kill()

            timer = threading.Timer(seconds, end)
            timer.start()
            try:
                child.stdin.write(json.dumps(request).encode() + b"\n")
                child.stdin.write(source)
                child.stdin.flush()
                header = json.loads(child.stdout.readline())
                body = child.stdout.read(header.get("bytes", 0))
                if len(body) < header.get("bytes", 0):
                    raise OSError("the child has died while it was answering")
            except (OSError, ValueError):
                raise self._failure(child, seconds if late.is_set() else None) from None
            except BaseException:  # an interruption: the answer would be taken for the next one
                self.close()
                raise
            finally:
                timer.cancel()
        if header.get("error") == _NO_MEMORY:
            raise SandboxError(f"it takes more than {MEMORY >> 20:,} MB of memory")
        if "error" in header:
            raise ValueError(header["error"])
        return header, body

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self.close()
            # The child finds all libraries where this process found them.
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._child = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, self._module, str(MEMORY)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        return self._child

    def _failure(self, child: subprocess.Popen[bytes], seconds: float | None) -> SandboxError:
        self.close()
        if seconds:
            return SandboxError(f"it takes more than {seconds:.0f} seconds")
        return SandboxError(
            f"it takes more than {MEMORY >> 20:,} MB of memory, or crashes its reader "
            f"(exit code {child.returncode})"
        )

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None


SANDBOX = Sandbox()


class PageFile:
    """A file of pages, each rendered by the child process when it is asked for.

    Parameters
    ----------
    path
        A PDF or an image.
    dpi, max_pixels
        As for :class:`pylate_eigenli.corpus.pages.PageReader`.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> path = Path(tempfile.mkdtemp()) / "report.pdf"
    >>> Image.new("RGB", (72, 144)).save(path)
    >>> file = PageFile(path, dpi=36, max_pixels=10_000)
    >>> file.numbers, file.render(1).size
    ([1], (36, 72))
    """

    def __init__(self, path: Path, dpi: float, max_pixels: int) -> None:
        self._path = path
        self._options = {"dpi": dpi, "max_pixels": max_pixels}
        self._failure: SandboxError | None = None
        self.numbers: list[int | None] = SANDBOX.call("pages", path, **self._options)[0]["numbers"]

    def render(self, number: int | None) -> Image:
        """Return a page as an RGB image. After a :class:`SandboxError`, no other page is tried."""
        from PIL import Image

        if self._failure is not None:
            raise self._failure
        try:
            header, body = SANDBOX.call("render", self._path, number=number, **self._options)
        except SandboxError as failure:
            self._failure = failure
            raise
        return Image.frombytes("RGB", tuple(header["size"]), body)


def read_texts(path: Path) -> tuple[str, list[tuple[int | None, str]]]:
    """Return the title of a file, and its text or those of its pages with their numbers."""
    header, body = SANDBOX.call("texts", path)
    return header["title"], json.loads(body)


# --- in the child -----------------------------------------------------------------------------


class Answers:
    """Answers requests, and keeps the file of the last one open."""

    def __init__(self) -> None:
        self._key: object = None
        self._file: Any = None

    def texts(self, path: Path) -> tuple[dict[str, Any], bytes]:
        from .readers import READERS, suffix_of

        title, texts = READERS[suffix_of(path)](path)
        return {"title": title}, json.dumps(texts, ensure_ascii=False).encode(errors="replace")

    def pages(self, path: Path, **options: Any) -> tuple[dict[str, Any], bytes]:
        return {"numbers": list(self._opened(path, **options).numbers)}, b""

    def render(
        self, path: Path, number: int | None, **options: Any
    ) -> tuple[dict[str, Any], bytes]:
        image = self._opened(path, **options).render(number)
        return {"size": image.size}, image.tobytes()

    def _opened(self, path: Path, dpi: float, max_pixels: int) -> Any:
        from .page_files import open_pages

        key = (path, dpi, max_pixels, path.stat().st_mtime_ns)
        if key != self._key:
            if self._file is not None:
                self._file.close()
            self._key = self._file = None
            self._file = open_pages(path, dpi, max_pixels)
            self._key = key
        return self._file


def _reason(error: Exception) -> str:
    """Return the reason of an error in one line."""
    if isinstance(error, MemoryError):
        return _NO_MEMORY
    text = str(error).strip() or type(error).__name__
    if "Incorrect password" in text:
        return "encrypted"
    return text.splitlines()[0]


def _main(module: str, memory: int) -> None:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers, out = import_module(module).Answers(), sys.stdout.buffer
    for line in sys.stdin.buffer:
        request = json.loads(line)
        path, sent = request.pop("path"), sys.stdin.buffer.read(request.pop("bytes"))
        seconds = request.pop("seconds")
        if sys.platform != "win32":
            signal.alarm(int(seconds) + _GRACE)
        body = b""
        try:
            call = getattr(answers, request.pop("call"))
            header, body = call(sent if path is None else Path(path), **request)
            header["bytes"] = len(body)
        except Exception as error:  # PDFium, Pillow and the file system fail in many ways
            header = {"error": _reason(error)}
        out.write(json.dumps(header).encode() + b"\n" + body)
        out.flush()
        if sys.platform != "win32":
            signal.alarm(0)
