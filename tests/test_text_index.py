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
from pylate_eigenli.storage import Store
from pylate_eigenli.text_index import TextIndex
from pylate_eigenli.texts import TextDocument, TextStore

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
    texts = TextStore(tmp_path)
    ids = [7, "7", 10**30, -1, "[1]", 'a"b']
    texts.put((TextDocument(i, repr(i)) for i in ids), since=1)
    assert {i: document.text for i, document in texts.get(ids).items()} == {i: repr(i) for i in ids}
    texts.put([TextDocument(7, "")], since=2)
    assert list(texts.get(ids)) == ids[1:]
    assert list(texts.get(ids, state=1)) == ids


def test_what_no_longer_holds_is_deleted_in_time(tmp_path, monkeypatch):
    texts = TextStore(tmp_path)

    def versions():
        with sqlite3.connect(texts.path) as connection:
            return connection.execute("SELECT id, since FROM texts ORDER BY id, since").fetchall()

    texts.put([TextDocument("a", "red"), TextDocument("b", "same")], since=1)
    for state, text in ((2, "green"), (3, "")):
        texts.put([TextDocument("a", text)], since=state)
        texts.discard(["a"], state)
    assert versions() == [('"a"', 1), ('"a"', 2), ('"a"', 3), ('"b"', 1)]
    assert texts.get(["a"], state=2)["a"].text == "green"
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 3600)
    texts.put([], since=4)
    assert versions() == [('"b"', 1)]


def test_a_text_of_a_change_that_never_came_is_not_shown(tmp_path):
    texts = TextStore(tmp_path)
    texts.put([TextDocument("a", "old")], since=1)
    texts.put([TextDocument("a", "never committed")], since=2)
    texts.put([TextDocument("b", "the change after it")], since=2)
    assert texts.get(["a"])["a"].text == "old"


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
