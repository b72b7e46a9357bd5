"""The decorators that compile kernels, and the only place with options of numba.

Kernels release the interpreter lock, so threads run in parallel. Their machine code is cached in
the first of these folders that can be written: ``NUMBA_CACHE_DIR``, next to the source, in the
user's cache. No option lets the compiler assume that numbers are finite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def precise(function: FunctionT) -> FunctionT:
    """Compile loops whose order of summation matters: the compiler keeps the order of the source."""
    return _compiled(function, "contract")


def reordered(function: FunctionT) -> FunctionT:
    """Compile long inner products: the compiler may reorder sums in order to vectorise them."""
    return _compiled(function, "reassoc", "contract", "nsz")


def _compiled(function: FunctionT, *fastmath: str) -> FunctionT:
    jit: Any = njit
    options = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}
    try:
        kernel: FunctionT = jit(cache=True, **options)(function)
    except RuntimeError:  # nowhere to write: compile in every process
        kernel = jit(**options)(function)
    return kernel
