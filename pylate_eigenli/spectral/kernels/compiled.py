"""The decorators that compile kernels, and the only place with options of numba.

Kernels release the interpreter lock, so threads run in parallel. Their machine code is cached on
disk. No option lets the compiler assume that numbers are finite.
"""

from __future__ import annotations

from numba import njit

precise = njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
"""For loops whose order of summation matters: the compiler keeps the order of the source."""

reordered = njit(
    nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"}
)
"""For long inner products: the compiler may reorder sums in order to vectorise them."""
