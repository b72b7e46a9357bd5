from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from pylate_eigenli.spectral.kernels.simd import (
    LANES,
    load,
    load_eight,
    select_less,
    splat,
    store,
    total,
    totals,
)


@njit
def calculated(x, y, out, sums):
    a, b = load(x, 0), load(y, 1)
    store(out[0], 0, a + b)
    store(out[1], 0, a - b)
    store(out[2], 0, a * b)
    store(out[3], 0, a / b)
    store(out[4], 0, select_less(a, b, a, splat(x[2])))
    store(sums, 0, totals(a, b, a - b, a * b))
    return total(a), total(load_eight(x, 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lanes_calculate_as_arrays_do(dtype):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(1, 2, LANES).astype(dtype), rng.uniform(1, 2, LANES + 1).astype(dtype)
    out = np.empty((5, LANES), dtype)
    four = np.empty(4, dtype)
    sums = calculated(x, y, out, four)
    z = y[1:]
    expected = [x + z, x - z, x * z, x / z, np.where(x < z, x, x[2])]
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_allclose(sums, [x.sum(), x[:8].sum()], rtol=1e-6)
    np.testing.assert_allclose(four, [x.sum(), z.sum(), (x - z).sum(), (x * z).sum()], rtol=1e-5)
