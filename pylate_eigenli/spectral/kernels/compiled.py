"""The decorators that compile kernels, and the only place with options of numba.

Kernels release the interpreter lock, so threads run in parallel. Their machine code is cached in
the first of these folders that can be written: ``NUMBA_CACHE_DIR``, next to the source, in the
user's cache. No option lets the compiler assume that numbers are finite.
"""

from __future__ import annotations

from typing import Any

from numba import njit


def _kernel(*fastmath: str) -> Any:
    options = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}

    def compiled(function: Any) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # nowhere to write: compile in every process
            return njit(**options)(function)

    return compiled


precise = _kernel("contract")
"""For loops whose order of summation matters: the compiler keeps the order of the source."""

reordered = _kernel("reassoc", "contract", "nsz")
"""For long inner products: the compiler may reorder sums in order to vectorise them."""
