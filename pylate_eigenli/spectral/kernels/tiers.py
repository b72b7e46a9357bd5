"""Compile the two large kernels in the background, once a plain function has worked long enough.

The eigensolver takes several seconds to compile on a machine that has not used it before. A small
collection is done sooner with LAPACK, and a large one need not wait: LAPACK works on until the
compiled kernel is ready. Machine code in numba's cache is used from the first document on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

from numba import typeof

_WORTH_COMPILING = 2.0  # seconds of the plain function on a core, added over threads


class Tiered:
    """A compiled kernel, and the plain function that stands in for it until it is compiled.

    Calling it calls one of the two. The background thread is not a daemon: killing a compiler that
    is at work would crash the interpreter at its exit, which therefore waits.

    Parameters
    ----------
    kernel
        The compiled kernel. It must not be called directly from Python.
    plain
        Takes the same arguments, and returns what the kernel returns but for rounding.
    """

    _all: ClassVar[list[Tiered]] = []

    def __init__(self, kernel: Any, plain: Callable[..., None]) -> None:
        self._kernel = kernel
        self._plain = plain
        self._seconds = 0.0
        self._types: tuple[Any, ...] | None = None
        self._compiling: threading.Thread | None = None
        self._lock = threading.Lock()
        self._all.append(self)

    def __call__(self, *arguments: Any) -> None:
        """Call the kernel if it is compiled, otherwise the plain function."""
        if self._is_ready(arguments):
            self._kernel(*arguments)
            return
        begin = time.thread_time()
        self._plain(*arguments)
        with self._lock:
            self._seconds += time.thread_time() - begin
            if self._seconds > _WORTH_COMPILING and self._compiling is None:
                self._compiling = threading.Thread(target=self.compile, name="eigenli-compile")
                self._compiling.start()

    def _is_ready(self, arguments: tuple[Any, ...]) -> bool:
        if self._kernel.signatures:
            return True
        with self._lock:
            if self._types is None:
                types = tuple(map(typeof, arguments))
                cache = self._kernel._cache  # numba has no other way to ask; NullCache has nothing
                if cache.load_overload(types, self._kernel.targetctx) is not None:
                    self._kernel.compile(types)  # reads the cache
                self._types = types
        return bool(self._kernel.signatures)

    def wait(self) -> None:
        """Wait until the background has compiled the kernel, if it is about to."""
        if self._compiling is not None:
            self._compiling.join()

    def compile(self) -> None:
        """Compile the kernel for the arguments of the first call, if there was one."""
        if self._types is not None:
            self._kernel.compile(self._types)

    @classmethod
    def compile_all(cls) -> None:
        """Compile all kernels that have been called."""
        for tiered in cls._all:
            tiered.compile()
