from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylate_eigenli.storage.ids import EncodedIds, checked_id, checked_ids

document_ids = st.lists(st.one_of(st.text(), st.integers()))


class TestEncodedIds:
    @given(document_ids)
    def test_decoding_gives_back_ids_of_the_same_type(self, ids):
        decoded = EncodedIds.encode(ids).decode()
        assert decoded == ids
        assert [type(i) for i in decoded] == [type(i) for i in ids]

    @given(document_ids, st.data())
    def test_rows_select_ids(self, ids, data):
        keep = data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
        kept = [i for i, is_kept in zip(ids, keep, strict=True) if is_kept]
        assert EncodedIds.encode(ids).decode(np.flatnonzero(keep)) == kept

    def test_a_lone_surrogate_is_refused(self):
        with pytest.raises(ValueError, match=r"'bad\\ud800' is not valid Unicode"):
            EncodedIds.encode(["fine", "bad\ud800"])


class TestCheckedIds:
    def test_numpy_scalars_become_plain(self):
        ids = checked_ids([np.int32(3), np.uint64(2**63), np.str_("x")])
        assert ids == [3, 2**63, "x"]
        assert [type(i) for i in ids] == [int, int, str]

    @pytest.mark.parametrize("bad", [True, np.bool_(False), 1.0, None, b"x", ("a",)])
    def test_other_types_are_refused(self, bad):
        with pytest.raises(TypeError, match="a document id is a str or an int"):
            checked_id(bad)

    def test_a_single_string_is_refused(self):
        with pytest.raises(TypeError, match="single id 'abc'"):
            checked_ids("abc")
