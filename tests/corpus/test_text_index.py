"""TextIndex: texts and vectors stay together, and an index knows its model."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pylate_eigenli import IndexFormatError, UnknownDocumentError
from pylate_eigenli.corpus import text_store as texts
from pylate_eigenli.corpus.text_index import TextIndex
from pylate_eigenli.corpus.text_store import ALWAYS, TextDocument, TextStore, snippet
from pylate_eigenli.errors import IndexLockedError
from pylate_eigenli.storage import Store

DOCUMENTS = [
    TextDocument("apple", "the apple is a red fruit", "Apple"),
    TextDocument("sky", "the sky is blue"),
    TextDocument(7, "the sea is blue water"),
]


@pytest.fixture
def index(tmp_path, tiny_model):
    with TextIndex(tmp_path / "index", model=str(tiny_model), k=4) as index:
        index.add(DOCUMENTS)
        yield index


def test_a_document_is_found_by_its_own_text_and_shown_with_it(index):
    for document in DOCUMENTS:
        (answer,) = index.search([document.whole], k=1, explain=True)
        (hit,) = answer.hits
        assert (hit.id, hit.title, hit.snippet) == (document.id, document.title, document.text)
        assert len(answer.tokens) == len(hit.contributions)
        assert hit.contributions.sum() == pytest.approx(hit.score, rel=1e-5)


def test_an_index_needs_no_word_about_its_model_and_refuses_another(index, tiny_model, tmp_path):
    with TextIndex(index.path) as again:
        assert again.model == str(tiny_model)
        assert again.search(["red fruit"])[0].hits == index.search(["red fruit"])[0].hits
    with pytest.raises(ValueError, match="was made with the model"):
        TextIndex(index.path, model="another/model")


def test_a_model_that_has_moved_can_be_named(tmp_path, tiny_model):
    before, after = tmp_path / "before", tmp_path / "after"
    shutil.copytree(tiny_model, before)
    with TextIndex(tmp_path / "index", model=str(before), k=4) as index:
        index.add(DOCUMENTS)
    before.rename(after)
    with TextIndex(tmp_path / "index") as index, pytest.raises(ValueError, match="is gone from"):
        index.search(["red"])
    with TextIndex(tmp_path / "index", model=str(after)) as index:
        index.add(DOCUMENTS[:1])
    with TextIndex(tmp_path / "index") as index:
        assert index.search(["red"], k=1)[0].hits


class TestTextsFollowTheIndex:
    def test_a_failed_change_leaves_both(self, index):
        new = [TextDocument("apple", "green"), TextDocument("new", "yellow sun")]
        with pytest.raises(ValueError, match="dimension"):
            index.add(new, [np.eye(5), np.eye(5)])
        assert index.texts.get(["apple", "new"]) == {"apple": DOCUMENTS[0]}
        with pytest.raises(UnknownDocumentError):
            index.remove(["apple", "new"])
        assert "apple" in index.index
        assert index.texts.get(["apple"]) == {"apple": DOCUMENTS[0]}

    def test_a_replaced_and_a_removed_document_take_their_texts_along(self, index):
        index.add([TextDocument("apple", "a green leaf")])
        index.add([TextDocument("sky", "")], [np.eye(8)[:3]])
        index.remove([7])
        assert index.texts.get(["apple", "sky", 7]) == {
            "apple": TextDocument("apple", "a green leaf")
        }

    def test_the_storage_leaves_the_texts_alone(self, index):
        index.index.compact()
        with Store(index.path).transaction(override=True):
            pass
        assert len(index.texts.get(["apple", "sky", 7])) == 3


def test_ids_of_any_kind_and_size_are_told_apart(tmp_path):
    store = TextStore(tmp_path)
    ids = [7, "7", 10**30, -1, "[1]", 'a"b']
    store.put((TextDocument(i, repr(i)) for i in ids), since=1)
    assert {i: document.text for i, document in store.get(ids).items()} == {i: repr(i) for i in ids}
    store.put([TextDocument(7, "")], since=2)
    assert list(store.get(ids)) == ids[1:]
    assert list(store.get(ids, state=1)) == ids


def test_what_no_longer_holds_is_deleted_in_time(tmp_path, monkeypatch):
    store = TextStore(tmp_path)

    def versions():
        with sqlite3.connect(store.path) as connection:
            return connection.execute("SELECT id, since FROM texts ORDER BY id, since").fetchall()

    store.put([TextDocument("a", "red"), TextDocument("b", "same")], since=1)
    for state, text in ((2, "green"), (3, "")):
        store.put([TextDocument("a", text)], since=state)
        store.discard(["a"], state)
    assert versions() == [('"a"', 1), ('"a"', 2), ('"a"', 3), ('"b"', 1)]
    assert store.get(["a"], state=2)["a"].text == "green"
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 3600)
    store.put([], since=4)
    assert versions() == [('"b"', 1)]


def test_a_text_of_a_change_that_never_came_is_not_shown(tmp_path):
    store = TextStore(tmp_path)
    store.put([TextDocument("a", "old")], since=1)
    store.put([TextDocument("a", "never committed")], since=2)
    store.put([TextDocument("b", "the change after it")], since=2)
    assert store.get(["a"])["a"].text == "old"


def test_altered_texts_and_files_of_other_versions_are_told(index):
    with sqlite3.connect(index.texts.path) as connection:
        connection.execute("UPDATE texts SET text = 'forged' WHERE id = '7'")
    assert index.texts.damage() == [
        f"{index.texts.path} is damaged: the text of document 7 is altered"
    ]
    with sqlite3.connect(index.texts.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(IndexFormatError, match="of another version"):
        index.texts.get(["apple"])


def test_an_answer_shows_the_texts_of_its_own_state(index):
    with TextIndex(index.path) as reader:
        before = reader.search(["the apple is a red fruit"], k=3)[0].hits
        index.add([TextDocument("apple", "a green leaf", "Leaf")])
        index.remove(["sky"])
        assert reader.search(["the apple is a red fruit"], k=3)[0].hits == before
        reader.index.refresh()
        titles = {hit.id: hit.title for hit in reader.search(["leaf"], k=3)[0].hits}
        assert titles == {"apple": "Leaf", 7: ""}


def test_spectra_leave_out_what_another_thread_moves_away_from(tmp_path, tiny_model):
    settings = {"single_vector": True, "keep_tokens": "float16", "k": 4}
    with TextIndex(tmp_path / "kept", model=str(tiny_model), **settings) as index:
        index.add(DOCUMENTS)
        done = threading.Event()

        def come_and_go():
            while not done.is_set():
                index.remove(["sky"])
                index.add(DOCUMENTS[1:2])

        with ThreadPoolExecutor(1) as pool:
            changes = pool.submit(come_and_go)
            end = time.monotonic() + 2
            seen = set()
            while time.monotonic() < end:
                seen.add(tuple(index.spectra(["apple", "sky"])))
            done.set()
            changes.result()
    assert seen <= {("apple", "sky"), ("apple",)}


def test_re_ranking_is_refused_where_nothing_is_kept_for_it(index):
    with pytest.raises(ValueError, match="only an index of single vectors"):
        index.search(["red"], rerank="maxsim")


def test_spectra_come_from_kept_tokens_or_from_the_texts(index, tmp_path, tiny_model):
    settings = {"single_vector": True, "keep_tokens": "float16", "k": 4}
    with TextIndex(tmp_path / "kept", model=str(tiny_model), **settings) as kept:
        kept.add(DOCUMENTS)
        kept.texts.put([TextDocument("apple", "")], since=2)
        from_tokens, from_texts = kept.spectra(["apple", "?"]), index.spectra(["apple", "?"])
    assert list(from_tokens) == list(from_texts) == ["apple"]
    np.testing.assert_allclose(from_tokens["apple"][:4], from_texts["apple"][:4], rtol=1e-2)


class TestOverride:
    @pytest.mark.parametrize("damage", ["not a database" * 100, "of another version"])
    def test_replaces_texts_that_cannot_be_read(self, index, damage):
        if damage == "of another version":
            with sqlite3.connect(index.texts.path) as connection:
                connection.execute("PRAGMA user_version = 1")
        else:
            index.texts.path.write_text(damage)
        with TextIndex(index.path, override=True, k=2) as new:
            new.add([TextDocument("a", "red")], [np.eye(8)])
            assert new.texts.get(["a", "apple"]).keys() == {"a"}
            assert new.texts.damage() == []

    def test_lets_nobody_write_before_the_texts_are_gone(self, index, monkeypatch):
        clear = TextStore.clear

        def contested(store):
            with pytest.raises(IndexLockedError):
                index.add([TextDocument("between", "red")])
            assert len(TextIndex(index.path)) == 3  # and nothing is committed yet
            clear(store)

        monkeypatch.setattr(TextStore, "clear", contested)
        TextIndex(index.path, override=True).close()
        index.add([TextDocument("after", "green")])
        with TextIndex(index.path) as again:
            assert len(again) == 1
            assert again.texts.get(["between", "after"]).keys() == {"after"}
            assert again.model == index.model

    @pytest.mark.parametrize(
        "settings",
        [{"k": 0}, {"nonsense": 1}, {"single_vector": True, "backend": "qdrant", "dtype": "int8"}],
    )
    def test_with_settings_that_cannot_be_empties_nothing(self, index, settings):
        with pytest.raises((TypeError, ValueError)):
            TextIndex(index.path, override=True, **settings)
        with TextIndex(index.path) as again:
            assert again.search(["red fruit"])[0].hits == index.search(["red fruit"])[0].hits

    def test_by_another_process_with_another_model_ends_the_use_of_the_old_one(
        self, index, tiny_model, tmp_path
    ):
        other = tmp_path / "other-model"
        shutil.copytree(tiny_model, other)
        reader = index.reopened()
        with TextIndex(index.path, model=str(other), override=True, k=4) as new:
            new.add(DOCUMENTS[:1])
        for use in (lambda: reader.search(["red"]), lambda: index.add(DOCUMENTS)):
            with pytest.raises(ValueError, match=f"made anew with the model {other}; open it"):
                use()
        assert TextStore(index.path).model == str(other)
        assert len(TextIndex(index.path)) == 1
        reader.close()

    def test_between_encoding_and_committing_is_noticed(self, index, tiny_model, tmp_path):
        other = tmp_path / "other-model"
        shutil.copytree(tiny_model, other)

        def make_anew(_):
            if index.texts.model != str(other):
                with TextIndex(index.path, model=str(other), override=True, k=4) as new:
                    new.add(DOCUMENTS[:1])

        with pytest.raises(ValueError, match="made anew"):
            index.add(DOCUMENTS, advance=make_anew)
        assert len(TextIndex(index.path)) == 1


class TestFirstWrite:
    def test_leaves_nothing_of_tables_that_were_never_finished(self, tmp_path, monkeypatch):
        store = TextStore(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(texts, "_SCHEMA", (*texts._SCHEMA[:2], "and now for something else"))
            with pytest.raises(sqlite3.OperationalError):
                store.put(DOCUMENTS, since=1)
        assert (store.get(["apple"]), store.model, store.damage()) == ({}, None, [])
        store.put(DOCUMENTS, since=1)
        assert store.get(["apple"]) == {"apple": DOCUMENTS[0]}

    def test_an_empty_file_is_no_damage(self, tmp_path):
        store = TextStore(tmp_path)
        store.path.touch()
        assert (store.get(["apple"]), store.model, store.damage()) == ({}, None, [])
        assert store.passages("apple") == []

    def test_a_model_named_before_the_first_commit_binds_nobody(self, tmp_path, tiny_model):
        TextStore(tmp_path / "index").put([], since=1, model="somebody/elses-model")
        with TextIndex(tmp_path / "index", model=str(tiny_model), k=4) as index:
            index.add(DOCUMENTS)
            assert index.texts.model == str(tiny_model)


def test_passages_are_found_by_their_file_whatever_their_numbers(tmp_path, tiny_model):
    ids = ["a.txt#1", "a.txt#3", "a.txt#12", "a.txt#x", "a.txt", "ä.txt#1", "b/a.txt#2", "a.txtt#1"]
    with TextIndex(tmp_path / "index", model=str(tiny_model), k=4) as index:
        index.add([TextDocument(i, "red") for i in ids])
        index.remove(["a.txt#3"])
        assert index.passages("a.txt") == ["a.txt#1", "a.txt#12"]
        assert index.passages("ä.txt") == ["ä.txt#1"]
        assert index.passages("c.txt") == []


@pytest.mark.parametrize("backend", ["qdrant", "milvus"])
class TestServers:
    @pytest.fixture
    def served(self, backend, tmp_path, tiny_model):
        pytest.importorskip({"qdrant": "qdrant_client", "milvus": "milvus_lite"}[backend])
        settings = {"single_vector": True, "backend": backend, "keep_tokens": "float16", "k": 4}
        with TextIndex(tmp_path / "served", model=str(tiny_model), **settings) as served:
            served.add(DOCUMENTS)
            yield served

    def test_texts_come_and_go_with_the_documents(self, served):
        (answer,) = served.search(["the sky is blue"], k=3, explain=True)
        shown = {hit.id: (hit.title, hit.snippet) for hit in answer.hits}
        assert shown == {document.id: (document.title, document.text) for document in DOCUMENTS}
        served.add([TextDocument("apple", "a green leaf")])
        served.add([TextDocument("sky", "")], [np.eye(8)[:3]])
        served.remove([7])
        assert served.texts.get(["apple", "sky", 7]) == {
            "apple": TextDocument("apple", "a green leaf")
        }
        assert len(served) == 2
        with pytest.raises(UnknownDocumentError):
            served.remove(["apple", "nobody"])
        assert served.texts.get(["apple"])
        assert list(served.spectra(["apple", 7])) == ["apple"]

    def test_an_override_empties_the_server_too(self, served, backend, tiny_model):
        served.close()
        settings = {"single_vector": True, "backend": backend, "k": 2}
        with TextIndex(served.path, model=str(tiny_model), override=True, **settings) as new:
            assert len(new) == 0
            new.add(DOCUMENTS[:1])
            assert new.missing(["apple", "sky"]) == ["sky"]
            assert new.texts.get(["apple", "sky"]).keys() == {"apple"}

    def test_searches_and_changes_of_two_threads_keep_apart(self, served):
        reader = served.reopened()
        with ThreadPoolExecutor(1) as pool:
            changes = pool.submit(
                lambda: [served.add([TextDocument(f"n{i}", "the sun is red")]) for i in range(10)]
            )
            while not changes.done():
                assert len(reader.search(["red sun"], k=3)[0].hits) == 3
            changes.result()
        assert len(reader) == 13


def test_texts_without_a_state_are_replaced_one_by_one(tmp_path):
    store = TextStore(tmp_path)
    store.put(DOCUMENTS, since=ALWAYS)
    store.put([TextDocument("sky", "grey")], since=ALWAYS)
    assert store.get(["apple", "sky"]) == {
        "apple": DOCUMENTS[0],
        "sky": TextDocument("sky", "grey"),
    }


@pytest.mark.parametrize(
    ("text", "query", "shown"),
    [
        ("x" * 1000, "y", 240),
        ("東京は日本の首都です。" * 100 + "人口が多い。", "人口", 15),
        ("short " + "y" * 1000, "short", 240),
    ],
)
def test_a_snippet_of_a_text_without_spaces_is_not_cut_short(text, query, shown):
    assert shown <= len(snippet(text, query)) <= 250
    assert query in snippet(text, query) or query == "y"
