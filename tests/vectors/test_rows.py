from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.definition import unit_rows

from pylate_eigenli.tokens import offsets_of
from pylate_eigenli.vectors.rows import ROW_DTYPES, StoredRows

# Largest error of an entry of a unit row.
PRECISION = {"float32": 0.0, "float16": 2.0**-11, "int8": 0.5 / 127}
LENGTHS = [2, 1, 5, 3, 1]


@pytest.fixture
def rows():
    return unit_rows(np.random.default_rng(0), sum(LENGTHS), 12)


OFFSETS = offsets_of(LENGTHS)


def stored(rows, dtype):
    return StoredRows.encode(torch.from_numpy(rows), dtype)


@pytest.mark.parametrize("dtype", ROW_DTYPES)
class TestRoundTrip:
    def test_entries_are_as_precise_as_their_dtype(self, rows, dtype):
        got = stored(rows, dtype).decode()
        assert got.dtype == torch.float32
        np.testing.assert_allclose(got.numpy(), rows, rtol=0, atol=PRECISION[dtype] + 1e-7)

    def test_a_range_holds_its_rows(self, rows, dtype):
        coded = stored(rows, dtype)
        assert torch.equal(coded.decode(slice(2, 11)), coded.decode()[2:11])
        assert coded.decode(slice(2, 2)).shape == (0, 12)

    def test_items_come_in_the_order_asked_for(self, rows, dtype):
        coded = stored(rows, dtype)
        whole = coded.decode().numpy()
        chosen = np.array([3, 0, 3, 2])
        for item, got in zip(chosen, coded.decode_items(OFFSETS, chosen), strict=True):
            np.testing.assert_array_equal(got, whole[OFFSETS[item] : OFFSETS[item + 1]])

    def test_no_items_have_no_rows(self, rows, dtype):
        assert stored(rows, dtype).decode_items(OFFSETS, np.zeros(0, np.int64)) == []


class TestValues:
    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    def test_floats_have_no_scales(self, rows, dtype):
        coded = stored(rows, dtype)
        assert coded.values.dtype == dtype
        assert coded.scales is None

    def test_integers_have_the_scale_of_their_row_beside_them(self, rows):
        coded = stored(rows, "int8")
        assert coded.values.dtype == np.int8
        assert coded.scales.dtype == np.float32
        assert (np.abs(coded.values.astype(int)).max(1) == 127).all()

    def test_axes_are_exact_in_every_dtype(self):
        rows = np.eye(12, dtype=np.float32)[[0, 3, 5, 5, 1, 2, 3, 4, 11, 10, 9, 8]]
        for dtype in ROW_DTYPES:
            np.testing.assert_allclose(stored(rows, dtype).decode(), rows, atol=1e-7)
