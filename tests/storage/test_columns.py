from __future__ import annotations

import numpy as np
import pytest
import safetensors.numpy

from pylate_eigenli.errors import IndexFormatError
from pylate_eigenli.storage.columns import DTYPES, ColumnFile, storable, write_columns

ARRAYS = {
    "matrix": np.arange(6, dtype=np.float16).reshape(3, 2),
    "flags": np.array([True, False, True]),
    "empty": np.zeros((0, 4), dtype=np.int8),
    "scalar": np.array(2.5),
    "long": np.arange(5, dtype=np.int64),
}


@pytest.fixture
def written(tmp_path):
    return write_columns(tmp_path / "segment-000001.safetensors", ARRAYS)


class TestColumnFile:
    def test_arrays_round_trip(self, tmp_path, written):
        file = ColumnFile(tmp_path, written)
        assert set(file.names) == set(ARRAYS)
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(file.read(name), array)
            assert file.read(name).dtype == file.dtype(name) == array.dtype
            assert file.shape(name) == array.shape

    @pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
    def test_every_dtype_is_supported(self, tmp_path, dtype):
        array = np.array([[0, 1], [1, 0]]).astype(dtype)
        record = write_columns(tmp_path / "segment-000001.safetensors", {"a": array})
        read = ColumnFile(tmp_path, record).read("a")
        assert read.dtype == dtype
        np.testing.assert_array_equal(read, array)

    def test_arrays_are_aligned_read_only_views_of_the_map(self, tmp_path, written):
        file = ColumnFile(tmp_path, written)
        for name in ("matrix", "flags", "long"):
            array = file.read(name)
            assert array is file.read(name)
            assert not array.flags.owndata
            assert array.flags.aligned
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0

    def test_arrays_outlive_the_object_and_the_file(self, tmp_path, written):
        array = ColumnFile(tmp_path, written).read("long")
        (tmp_path / written.file).unlink()
        np.testing.assert_array_equal(array, ARRAYS["long"])

    def test_any_reader_of_safetensors_can_open_it(self, tmp_path, written):
        loaded = safetensors.numpy.load_file(tmp_path / written.file)
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(loaded[name], array)

    def test_the_same_arrays_make_the_same_file(self, tmp_path, written):
        again = write_columns(tmp_path / "segment-000002.safetensors", ARRAYS)
        first, second = (tmp_path / record.file for record in (written, again))
        assert first.read_bytes() == second.read_bytes()

    def test_altered_bytes_are_never_returned(self, tmp_path, written):
        path = tmp_path / written.file
        intact = path.read_bytes()
        for position in range(len(intact)):
            altered = bytearray(intact)
            altered[position] ^= 0x10
            path.write_bytes(altered)
            with pytest.raises(IndexFormatError, match=written.file):
                _read_all(ColumnFile(tmp_path, written))

    def test_a_file_of_another_size_is_refused(self, tmp_path, written):
        path = tmp_path / written.file
        intact = path.read_bytes()
        for contents in (b"", intact[:-1], intact + b"\0"):
            path.write_bytes(contents)
            with pytest.raises(
                IndexFormatError, match=f"{len(contents)} bytes, but {len(intact)} were written"
            ):
                ColumnFile(tmp_path, written)

    def test_an_altered_column_leaves_others_readable(self, tmp_path, written):
        path = tmp_path / written.file
        contents = bytearray(path.read_bytes())
        contents[-1] ^= 1  # safetensors puts the narrowest type last
        path.write_bytes(contents)
        file = ColumnFile(tmp_path, written)
        assert file.altered() == ["flags"]
        np.testing.assert_array_equal(file.read("long"), ARRAYS["long"])
        with pytest.raises(IndexFormatError, match="'flags'"):
            file.read("flags")


class TestStorable:
    def test_layout_and_byte_order_are_normalised(self):
        array = np.arange(6, dtype=">i4").reshape(2, 3).T
        stored = storable(array, "array")
        assert stored.dtype == np.dtype("<i4")
        assert stored.flags.c_contiguous
        np.testing.assert_array_equal(stored, array)

    @pytest.mark.parametrize("bad", [np.array(["a"]), np.array([None]), np.array([1j])])
    def test_other_dtypes_are_refused(self, bad):
        with pytest.raises(ValueError, match="column 'x' has dtype"):
            storable(bad, "column 'x'")


def _read_all(file: ColumnFile) -> None:
    for name in file.names:
        file.read(name)
