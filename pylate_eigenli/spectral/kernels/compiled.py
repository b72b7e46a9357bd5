"""How kernels are compiled: the only place that knows numba's options.

A kernel holds no interpreter lock, so that threads run it side by side, and its machine code is
cached on disk. None of them may assume that numbers are finite.
"""

from __future__ import annotations

from numba import njit

precise = njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
"""For loops whose order of summation matters: sums are evaluated as they are written."""

reordered = njit(
    nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"}
)
"""For long inner products: the compiler may reorder sums, which vectorises them."""
