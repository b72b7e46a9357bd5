from __future__ import annotations

import os

import numpy as np
import pytest
from helpers.contents import assert_sound, contents, document_columns, orphans

from pylate_eigenli.errors import UnknownDocumentError
from pylate_eigenli.storage import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "indexes" / "index", segment_bytes=1000)


def add(store, ids, values=None, lengths=None):
    ids = list(ids)
    values = values or list(range(len(ids)))
    with store.transaction() as tx:
        tx.append(ids, **document_columns(values, lengths or [1] * len(ids)))


class TestEmptyStore:
    def test_reading_creates_nothing(self, store):
        snapshot = store.snapshot
        assert (len(snapshot), list(snapshot), snapshot.generation) == (0, [], 0)
        assert (dict(snapshot.meta), dict(snapshot.collection)) == ({}, {})
        assert "a" not in snapshot
        assert snapshot.locate(["a", 1]).tolist() == [-1, -1]
        assert snapshot.ids_of([]) == []
        assert store.snapshot.nbytes == 0
        assert store.verify() == []
        assert not store.refresh()
        assert not store.path.parent.exists()

    def test_a_segment_without_room_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="segment_bytes must be positive"):
            Store(tmp_path, segment_bytes=0)


class TestAppend:
    def test_documents_keep_their_columns_and_order(self, store):
        add(store, ["a", 1, "1"], values=[3, 4, 5], lengths=[2, 0, 1])
        assert contents(store.snapshot)["documents"] == [
            ("a", {"code": [3, -3], "token": [[3.0], [3.0]]}),
            (1, {"code": [4, -4], "token": []}),
            ("1", {"code": [5, -5], "token": [[5.0]]}),
        ]
        assert contents(Store(store.path).snapshot) == contents(store.snapshot)

    def test_a_known_id_is_replaced_and_moves_to_the_end(self, store):
        add(store, ["a", "b", "c"], values=[1, 2, 3])
        add(store, ["b", "d"], values=[4, 5])
        documents = contents(store.snapshot)["documents"]
        assert [(i, values["code"][0]) for i, values in documents] == [
            ("a", 1), ("c", 3), ("b", 4), ("d", 5)
        ]  # fmt: skip
        assert_sound(store)

    def test_large_batches_are_cut_into_segments_of_bounded_size(self, store):
        lengths = [n % 7 for n in range(100)]
        add(store, range(100), lengths=lengths)
        assert list(store.snapshot) == list(range(100))
        assert len(store.snapshot.segments) > 3
        # Beside its documents a file has a header, here of less than a thousand bytes.
        assert max(segment.nbytes for segment in store.snapshot.segments) < 2000
        assert [
            len(values["token"]) for _, values in contents(store.snapshot)["documents"]
        ] == lengths

    def test_a_document_larger_than_a_segment_gets_its_own(self, store):
        add(store, ["small", "large", "tiny"], lengths=[1, 5000, 1])
        assert [segment.ids() for segment in store.snapshot.segments] == [
            ["small"], ["large"], ["tiny"]
        ]  # fmt: skip

    def test_documents_may_have_columns_of_either_kind_or_none(self, tmp_path):
        for name, columns in {
            "none": {},
            "per document": {"documents": {"x": np.arange(2)}},
            "per row": {"rows": {"x": np.arange(3)}, "lengths": [1, 2]},
        }.items():
            store = Store(tmp_path / name)
            with store.transaction() as tx:
                tx.append(["", "b"], **columns)
            (segment,) = Store(store.path).snapshot.segments
            assert segment.ids() == ["", "b"]
            assert segment.has("x") == bool(columns)
            assert segment.offsets.tolist() == ([0, 1, 3] if name == "per row" else [0, 0, 0])

    def test_the_caller_may_reuse_its_arrays(self, store):
        vectors = np.ones((1, 4), dtype=np.float32)
        with store.transaction() as tx:
            tx.append(["a"], documents={"v": vectors})
            vectors[:] = 7
            tx.append(["b"], documents={"v": vectors})
        assert store.snapshot.segments[0].column("v")[:, 0].tolist() == [1, 7]

    def test_an_unknown_column_is_a_key_error(self, store):
        add(store, ["a"])
        with pytest.raises(KeyError, match="no column 'other'"):
            store.snapshot.segments[0].column("other")


class TestRefusedAppend:
    """Bad input is named, and leaves the transaction as it was."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"documents": {"v": np.ones((3, 2))}}, r"'v' has shape \(3, 2\) for 2 documents"),
            ({"documents": {"v": np.float32(1)}}, r"'v' has shape \(\) for 2 documents"),
            ({"rows": {"v": np.ones(3)}}, "'v'.* need lengths"),
            ({"rows": {"v": np.ones(3)}, "lengths": [1, 1]}, "'v' has shape .* sum to 2"),
            ({"rows": {"v": np.ones(3)}, "lengths": [3]}, "lengths have shape"),
            ({"rows": {"v": np.ones(3)}, "lengths": [4, -1]}, "non-negative integers"),
            ({"rows": {"v": np.ones(3)}, "lengths": [1.5, 1.5]}, "non-negative integers"),
            ({"lengths": [1, 1]}, "no columns per row"),
            (
                {"documents": {"v": np.ones(2)}, "rows": {"v": np.ones(2)}, "lengths": [1, 1]},
                "'v' is given both",
            ),
            ({"documents": {"v": np.array(["x", "y"])}}, "'v' has dtype"),
        ],
    )
    def test_columns_that_do_not_fit_each_other(self, store, arguments, message):
        with store.transaction() as tx:
            with pytest.raises(ValueError, match=message):
                tx.append(["a", "b"], **arguments)
            tx.append(["a", "b"])
        assert list(store.snapshot) == ["a", "b"]

    @pytest.mark.parametrize("when", ["within a transaction", "across transactions"])
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({}, "column 'v' is missing"),
            (
                {"documents": {"v": np.ones((1, 2), np.float16)}},
                r"'v' is float16\[2\] per document, but in the index it is float32\[2\] per doc",
            ),
            ({"documents": {"v": np.ones((1, 3), np.float32)}}, r"'v' is float32\[3\]"),
            (
                {"rows": {"v": np.ones((1, 2), np.float32)}, "lengths": [1]},
                r"'v' is float32\[2\] per row",
            ),
            (
                {"documents": {"v": np.ones((1, 2), np.float32), "w": np.ones(1)}},
                "column 'w' is new",
            ),
        ],
    )
    def test_columns_that_do_not_fit_the_index(self, store, when, arguments, message):
        first = {"documents": {"v": np.ones((1, 2), np.float32)}}
        if when == "across transactions":
            with store.transaction() as tx:
                tx.append(["a"], **first)
        with store.transaction() as tx:
            if when == "within a transaction":
                tx.append(["a"], **first)
            with pytest.raises(ValueError, match=message):
                tx.append(["b"], **arguments)
        assert list(store.snapshot) == ["a"]

    def test_an_id_twice_in_one_transaction(self, store):
        with store.transaction() as tx:
            with pytest.raises(ValueError, match="'a' is added twice"):
                tx.append(["b", "a", "a"])
            tx.append(["a", 1])
            with pytest.raises(ValueError, match="1 is added twice"):
                tx.append(["1", 1])
        assert list(store.snapshot) == ["a", 1]

    def test_ids_that_cannot_be_stored(self, store):
        with store.transaction() as tx:
            with pytest.raises(ValueError, match="lone surrogate"):
                tx.append(["\udfff"])
            with pytest.raises(TypeError, match="not bool"):
                tx.append([True])

    def test_a_column_without_a_name(self, store):
        with store.transaction() as tx, pytest.raises(TypeError, match="non-empty str"):
            tx.append(["a"], documents={"": np.ones(1)})


class TestRemove:
    def test_removed_documents_are_gone(self, store):
        add(store, range(30))
        with store.transaction() as tx:
            tx.remove([3, 17, 3])
        assert list(store.snapshot) == [i for i in range(30) if i not in (3, 17)]
        assert 3 not in store.snapshot
        assert_sound(store)
        assert list(Store(store.path).snapshot) == list(store.snapshot)

    def test_unknown_documents_are_named_and_nothing_is_removed(self, store):
        add(store, ["a", "b"])
        with store.transaction() as tx, pytest.raises(UnknownDocumentError) as caught:
            tx.remove(["a", *range(7)])
        assert str(caught.value) == "7 of 8 documents are not in the index: 0, 1, 2, 3, 4, ..."
        assert list(store.snapshot) == ["a", "b"]

    def test_documents_of_the_same_transaction_can_be_removed_and_added_again(self, store):
        with store.transaction() as tx:
            tx.append(["a", "b"], **document_columns([1, 2], [1, 1]))
            tx.remove(["a"])
            with pytest.raises(UnknownDocumentError, match="'a'"):
                tx.remove(["a"])
            tx.append(["a"], **document_columns([3], [1]))
        documents = contents(store.snapshot)["documents"]
        assert [(i, values["code"][0]) for i, values in documents] == [("b", 2), ("a", 3)]
        assert_sound(store)

    def test_an_emptied_index_takes_documents_of_another_kind(self, store):
        add(store, ["a"])
        with store.transaction() as tx:
            tx.remove(["a"])
            tx.append(["b"], documents={"other": np.ones(1)})
        assert store.snapshot.segments[0].has("other")
        assert_sound(store)


class TestMetaAndCollection:
    def test_they_are_committed_with_the_documents(self, store):
        with store.transaction() as tx:
            tx.meta["k"] = 8
            tx.set_collection("mean", np.arange(3.0))
        with store.transaction() as tx:
            tx.meta["list"] = [1, {"two": None}]
        for snapshot in (store.snapshot, Store(store.path).snapshot):
            assert snapshot.meta == {"k": 8, "list": [1, {"two": None}]}
            assert set(snapshot.collection) == {"mean"}
            assert snapshot.collection["mean"].tolist() == [0.0, 1.0, 2.0]

    def test_a_transaction_does_not_share_meta_with_the_snapshot(self, store):
        with store.transaction() as tx:
            tx.meta["nested"] = {"k": 1}
        with pytest.raises(ZeroDivisionError), store.transaction() as tx:
            tx.meta["nested"]["k"] = 1 / 0
        with store.transaction() as tx:
            tx.meta["nested"]["k"] = 2
            assert store.snapshot.meta["nested"] == {"k": 1}

    @pytest.mark.parametrize("bad", [float("nan"), {1, 2}, np.float32(1)])
    def test_meta_that_is_not_json_is_refused(self, store, bad):
        def add_with_bad_meta():
            with store.transaction() as tx:
                tx.append(["b"], **document_columns([1], [1]))
                tx.meta["bad"] = bad

        add(store, ["a"])
        with pytest.raises(ValueError, match="meta must consist of JSON values"):
            add_with_bad_meta()
        assert list(store.snapshot) == ["a"]
        assert orphans(store.path) == set()

    def test_snapshots_cannot_be_changed(self, store):
        with store.transaction() as tx:
            tx.set_collection("mean", np.zeros(2))
            tx.append(["a"])
        snapshot = store.snapshot
        with pytest.raises(TypeError):
            snapshot.meta["k"] = 1
        with pytest.raises(TypeError):
            snapshot.collection["k"] = np.zeros(1)
        for array in (snapshot.collection["mean"], snapshot.segments[0].alive, snapshot.starts):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1


class TestTransaction:
    def test_an_exception_leaves_everything_as_it_was(self, store):
        def change_everything_and_fail():
            with store.transaction() as tx:
                tx.meta["k"] = 1
                tx.set_collection("mean", np.zeros(2))
                tx.remove([0])
                tx.append(range(3, 100), **document_columns(list(range(97)), [1] * 97))
                assert orphans(store.path) > {"writer.json"}  # some segments are written already
                raise KeyboardInterrupt

        add(store, range(5))
        before, files = contents(store.snapshot), sorted(os.listdir(store.path))
        with pytest.raises(KeyboardInterrupt):
            change_everything_and_fail()
        assert contents(store.snapshot) == contents(Store(store.path).snapshot) == before
        assert sorted(os.listdir(store.path)) == files
        add(store, ["next"])

    def test_nothing_is_visible_before_the_commit(self, store):
        reader = Store(store.path)
        with store.transaction() as tx:
            tx.append(range(100), **document_columns(list(range(100)), [1] * 100))
            assert not reader.refresh()
            assert len(reader.snapshot) == 0
        assert reader.refresh()
        assert len(reader.snapshot) == 100

    def test_no_change_is_no_commit(self, store):
        add(store, ["a"])
        with store.transaction() as tx:
            tx.meta["k"] = 1
            tx.set_collection("mean", np.zeros(2))
        snapshot, modified = store.snapshot, os.stat(store.path / "manifest.json").st_mtime_ns
        with store.transaction() as tx:
            tx.meta["k"] = 1
            tx.append([])
            tx.remove([])
        store.compact()
        assert store.snapshot is snapshot
        assert os.stat(store.path / "manifest.json").st_mtime_ns == modified

    def test_clearing_an_empty_index_is_no_change(self, store):
        with store.transaction() as tx:
            tx.clear()
        assert store.snapshot.generation == 0

    def test_clearing_also_drops_changes_of_the_transaction(self, store):
        with store.transaction() as tx:
            tx.meta["k"] = 1
            tx.set_collection("mean", np.zeros(2))
            tx.append(range(50), **document_columns(list(range(50)), [1] * 50))
        with store.transaction() as tx:
            tx.append(["x"], **document_columns([1], [1]))
            tx.clear()
            tx.append(["x", 1], documents={"other": np.ones(2)})
        assert contents(store.snapshot) == {
            "meta": {},
            "collection": {},
            "documents": [("x", {"other": 1.0}), (1, {"other": 1.0})],
        }
        assert_sound(store)

    def test_it_cannot_be_used_after_its_end(self, store):
        with store.transaction() as tx:
            tx.append(["a"])
        for use in (
            lambda: tx.append(["b"]),
            lambda: tx.remove(["a"]),
            tx.clear,
            tx.compact,
            lambda: tx.set_collection("x", np.zeros(1)),
        ):
            with pytest.raises(RuntimeError, match="has ended"):
                use()

    def test_overriding_starts_from_nothing(self, store):
        add(store, range(50))
        store = Store(store.path, override=True)
        with store.transaction() as tx:
            tx.append(["a"], documents={"other": np.ones(1)})
        assert list(store.snapshot) == ["a"]
        assert store.snapshot.generation == 2
        with Store(store.path, override=True).transaction():
            pass
        assert store.refresh()
        assert list(store.snapshot) == []
        assert_sound(store)

    def test_overriding_leaves_the_old_state_until_the_first_commit(self, store):
        add(store, range(50))
        new = Store(store.path, override=True)

        def fail():
            with new.transaction() as tx:
                tx.append(["a"])
                raise RuntimeError("no")

        with pytest.raises(RuntimeError, match="no"):
            fail()
        assert not new.refresh()
        assert len(new.snapshot) == 0
        assert new.is_overriding
        assert len(Store(store.path).snapshot) == 50
        assert_sound(store)
        with new.transaction() as tx:
            tx.append(["a"])
        assert not new.is_overriding
        with new.transaction() as tx:
            tx.append(["b"])
        assert list(Store(store.path).snapshot) == ["a", "b"]


class TestSnapshot:
    def test_rows_are_counted_across_segments(self, store):
        add(store, range(100))
        with store.transaction() as tx:
            tx.remove([0, 50])
        snapshot = store.snapshot
        assert snapshot.starts.tolist() == [
            sum(s.n_documents for s in snapshot.segments[:i])
            for i in range(len(snapshot.segments) + 1)
        ]
        assert snapshot.locate([99, 1, "unknown", 50, 1]).tolist() == [99, 1, -1, -1, 1]
        assert snapshot.ids_of(np.array([99, 0, 42, 99])) == [99, 0, 42, 99]
        for start, segment in zip(snapshot.starts, snapshot.segments, strict=False):
            assert segment.ids() == list(range(start, start + segment.n_documents))

    def test_rows_can_be_grouped_by_segment(self, store):
        add(store, range(100))
        rows = np.array([70, 3, 99, 3, 0])
        restored = np.full(len(rows), -1)
        for segment, local_rows, positions in store.snapshot.by_segment(rows):
            restored[positions] = [segment.ids()[row] for row in local_rows]
        assert restored.tolist() == rows.tolist()

    @pytest.mark.parametrize("rows", [[-1], [3], [0, 100]])
    def test_rows_that_do_not_exist_are_refused(self, store, rows):
        add(store, range(3))
        with pytest.raises(IndexError, match="from 0 to 2"):
            store.snapshot.ids_of(rows)

    def test_an_earlier_snapshot_does_not_change(self, store):
        add(store, range(40))
        snapshot, before = store.snapshot, contents(store.snapshot)
        with store.transaction() as tx:
            tx.remove(range(0, 40, 2))
        store.compact()
        with store.transaction() as tx:
            tx.clear()
        assert contents(snapshot) == before
        assert snapshot.locate([4]).tolist() == [4]

    def test_refreshing_reuses_open_files_and_their_ids(self, store):
        add(store, range(100))
        reader = Store(store.path)
        reader.snapshot.locate([1])
        opened = {segment.record.uid: segment.file for segment in reader.snapshot.segments}
        with store.transaction() as tx:
            tx.remove([0])
            tx.append(["new"], **document_columns([1], [1]))
        assert reader.refresh()
        assert not reader.refresh()
        kept = [s for s in reader.snapshot.segments if s.record.uid in opened]
        assert len(kept) >= len(opened) - 1
        assert all(segment.file is opened[segment.record.uid] for segment in kept)
        assert reader.snapshot.locate([0, 1, "new"]).tolist() == [-1, 1, 100]

    def test_nbytes_counts_all_files_of_the_index_but_its_reserve(self, store):
        add(store, range(30))
        with store.transaction() as tx:
            tx.remove([3])
            tx.set_collection("mean", np.zeros(4))
        files = {path.name: path.stat().st_size for path in store.path.iterdir()}
        assert store.snapshot.nbytes == sum(files.values()) - files["reserve"]

    def test_a_closed_store_opens_again(self, store):
        add(store, ["a"])
        column = store.snapshot.segments[0].column("code")
        store.close()
        assert column.tolist() == [[0, 0]]
        assert list(store.snapshot) == ["a"]


class TestMerging:
    def test_many_small_additions_leave_few_segments(self, tmp_path):
        store = Store(tmp_path)
        for i in range(150):
            add(store, [i], values=[i])
            assert len(store.snapshot.segments) <= 8
        assert list(store.snapshot) == list(range(150))
        assert_sound(store)

    def test_many_removals_shrink_the_index(self, store):
        add(store, range(200))
        full = store.snapshot.nbytes
        for i in range(0, 180, 20):
            with store.transaction() as tx:
                tx.remove(range(i, i + 20))
        assert list(store.snapshot) == list(range(180, 200))
        assert store.snapshot.nbytes < full / 4
        assert_sound(store)

    def test_compacting_drops_every_dead_document(self, store):
        add(store, range(60))
        with store.transaction() as tx:
            tx.remove(range(0, 60, 10))
        before = contents(store.snapshot)
        store.compact()
        assert contents(store.snapshot) == before
        assert all(segment.alive.all() for segment in store.snapshot.segments)
        assert_sound(store)

    def test_ids_of_both_types_survive_merging(self, tmp_path):
        store = Store(tmp_path)
        ids = [1, "1", "", -5, "line\nbreak", 10**30, "日本", "\0"]
        for document_id in ids:
            add(store, [document_id])
        store.compact()
        assert len(store.snapshot.segments) == 1
        restored = list(Store(tmp_path).snapshot)
        assert restored == ids
        assert [type(i) for i in restored] == [type(i) for i in ids]
