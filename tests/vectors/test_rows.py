from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.definition import unit_rows

from pylate_eigenli.storage import Store
from pylate_eigenli.vectors.rows import DTYPES, decode_documents, decode_range, encode, scale_of

# Largest error of an entry of a unit row.
PRECISION = {"float32": 0.0, "float16": 2.0**-11, "int8": 0.5 / 127}
LENGTHS = [2, 1, 5, 3, 1]


@pytest.fixture
def rows():
    return unit_rows(np.random.default_rng(0), sum(LENGTHS), 12)


def stored(folder, rows, dtype):
    store = Store(folder)
    with store.transaction() as transaction:
        columns = encode("basis", torch.from_numpy(rows), dtype)
        transaction.append(range(len(LENGTHS)), rows=columns, lengths=LENGTHS)
    (segment,) = store.snapshot.segments
    return segment


@pytest.mark.parametrize("dtype", DTYPES)
class TestRoundTrip:
    def test_entries_are_as_precise_as_their_dtype(self, tmp_path, rows, dtype):
        got = decode_range(stored(tmp_path, rows, dtype), "basis", 0, len(LENGTHS))
        assert got.dtype == torch.float32
        np.testing.assert_allclose(got.numpy(), rows, rtol=0, atol=PRECISION[dtype] + 1e-7)

    def test_a_range_holds_the_rows_of_its_documents(self, tmp_path, rows, dtype):
        segment = stored(tmp_path, rows, dtype)
        whole = decode_range(segment, "basis", 0, len(LENGTHS))
        assert torch.equal(decode_range(segment, "basis", 1, 4), whole[2:11])
        assert decode_range(segment, "basis", 2, 2).shape == (0, 12)

    def test_documents_come_in_the_order_asked_for(self, tmp_path, rows, dtype):
        segment = stored(tmp_path, rows, dtype)
        whole = decode_range(segment, "basis", 0, len(LENGTHS)).numpy()
        starts = np.concatenate([[0], np.cumsum(LENGTHS)])
        chosen = np.array([3, 0, 3, 2])
        for document, got in zip(chosen, decode_documents(segment, "basis", chosen), strict=True):
            np.testing.assert_array_equal(got, whole[starts[document] : starts[document + 1]])

    def test_no_documents_have_no_rows(self, tmp_path, rows, dtype):
        segment = stored(tmp_path, rows, dtype)
        assert decode_documents(segment, "basis", np.zeros(0, np.int64)) == []


class TestColumns:
    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    def test_floats_are_one_column(self, rows, dtype):
        columns = encode("basis", torch.from_numpy(rows), dtype)
        assert {name: column.dtype for name, column in columns.items()} == {"basis": dtype}

    def test_integers_have_the_scale_of_their_row_beside_them(self, rows):
        columns = encode("basis", torch.from_numpy(rows), "int8")
        assert set(columns) == {"basis", scale_of("basis")}
        assert columns["basis"].dtype == np.int8
        assert columns[scale_of("basis")].dtype == np.float32
        assert (np.abs(columns["basis"].astype(int)).max(1) == 127).all()

    def test_axes_are_exact_in_every_dtype(self, tmp_path):
        rows = np.eye(12, dtype=np.float32)[[0, 3, 5, 5, 1, 2, 3, 4, 11, 10, 9, 8]]
        for dtype in DTYPES:
            segment = stored(tmp_path / dtype, rows, dtype)
            np.testing.assert_allclose(
                decode_range(segment, "basis", 0, len(LENGTHS)), rows, atol=1e-7
            )
