"""TextIndex: texts and vectors stay together, and an index knows its model."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pylate_eigenli import IndexFormatError, UnknownDocumentError
from pylate_eigenli.corpus import catalogue_file
from pylate_eigenli.corpus.catalogue import ALWAYS, Catalogue
from pylate_eigenli.corpus.committing import verify
from pylate_eigenli.corpus.document import Document
from pylate_eigenli.corpus.hits import snippet
from pylate_eigenli.corpus.text_index import TextIndex
from pylate_eigenli.errors import IndexLockedError
from pylate_eigenli.indexes.ann import accelerator
from pylate_eigenli.indexes.open_index import open_index
from pylate_eigenli.storage import Store
from pylate_eigenli.storage.manifest import Manifest

DOCUMENTS = [
    Document("apple", "the apple is a red fruit", "Apple"),
    Document("sky", "the sky is blue"),
    Document(7, "the sea is blue water"),
]


@pytest.fixture
def index(tmp_path, tiny_model):
    with TextIndex(tmp_path / "index", model=str(tiny_model), k=4) as index:
        index.add_documents(DOCUMENTS)
        yield index


def another_model(model, folder):
    """A model that differs in a setting."""
    shutil.copytree(model, folder)
    settings = folder / "config.json"
    settings.write_text(settings.read_text() + " ")
    return folder


def test_a_document_is_found_by_its_own_text_and_shown_with_it(index):
    for document in DOCUMENTS:
        (answer,) = index.answers([document.whole], k=1, explain=True)
        (hit,) = answer.hits
        assert (hit.id, hit.title, hit.snippet) == (document.id, document.title, document.text)
        assert len(answer.tokens) == len(hit.contributions)
        assert hit.contributions.sum() == pytest.approx(hit.score, rel=1e-5)


def test_an_index_needs_no_word_about_its_model_and_refuses_another(index, tiny_model, tmp_path):
    with TextIndex(index.path) as again:
        assert again.model == str(tiny_model)
        assert again.answers(["red fruit"])[0].hits == index.answers(["red fruit"])[0].hits
    with pytest.raises(ValueError, match="was made with the model"):
        TextIndex(index.path, model="another/model")


def test_a_model_that_has_moved_can_be_named(tmp_path, tiny_model):
    before, after = tmp_path / "before", tmp_path / "after"
    shutil.copytree(tiny_model, before)
    with TextIndex(tmp_path / "index", model=str(before), k=4) as index:
        index.add_documents(DOCUMENTS)
    before.rename(after)
    other = another_model(after, tmp_path / "other")
    with pytest.raises(ValueError, match=f"was made with the model {before}, not {other}"):
        TextIndex(tmp_path / "index", model=str(other))
    with TextIndex(tmp_path / "index") as index, pytest.raises(ValueError, match="is no longer in"):
        index.answers(["red"])
    with TextIndex(tmp_path / "index", model=str(after)) as index:
        index.add_documents(DOCUMENTS[:1])
    with TextIndex(tmp_path / "index") as index:
        assert index.answers(["red"], k=1)[0].hits


class TestTextsFollowTheIndex:
    def test_a_failed_change_leaves_both(self, index):
        new = [Document("apple", "green"), Document("new", "yellow sun")]
        with pytest.raises(ValueError, match="dimension"):
            index.add_documents(new, [np.eye(5), np.eye(5)])
        assert index.catalogue.get(["apple", "new"]) == {"apple": DOCUMENTS[0]}
        with pytest.raises(UnknownDocumentError):
            index.remove(["apple", "new"])
        assert "apple" in index.index
        assert index.catalogue.get(["apple"]) == {"apple": DOCUMENTS[0]}

    def test_a_replaced_and_a_removed_document_take_their_texts_along(self, index):
        index.add_documents([Document("apple", "a green leaf")])
        index.add_documents([Document("sky", "")], [np.eye(8)[:3]])
        index.remove([7])
        assert index.catalogue.get(["apple", "sky", 7]) == {
            "apple": Document("apple", "a green leaf")
        }

    def test_the_storage_leaves_the_texts_alone(self, index):
        index.index.compact()
        with Store(index.path, override=True).transaction():
            pass
        assert len(index.catalogue.get(["apple", "sky", 7])) == 3


def test_ids_of_any_kind_and_size_are_told_apart(tmp_path):
    store = Catalogue(tmp_path)
    ids = [7, "7", 10**30, -1, "[1]", 'a"b']
    store.put((Document(i, repr(i)) for i in ids), since=1)
    assert {i: document.text for i, document in store.get(ids).items()} == {i: repr(i) for i in ids}
    store.put([Document(7, "")], since=2)
    assert list(store.get(ids)) == ids[1:]
    assert list(store.get(ids, generation=1)) == ids


def test_what_no_longer_holds_is_deleted_in_time(tmp_path, monkeypatch):
    store = Catalogue(tmp_path)

    def versions():
        with sqlite3.connect(store.path) as connection:
            return connection.execute("SELECT id, since FROM texts ORDER BY id, since").fetchall()

    store.put([Document("a", "red"), Document("b", "same")], since=1)
    for state, text in ((2, "green"), (3, "")):
        store.put([Document("a", text)], since=state)
        store.discard(["a"], state, removed=not text)
    assert versions() == [('"a"', 1), ('"a"', 2), ('"a"', 3), ('"b"', 1)]
    assert store.get(["a"], generation=2)["a"].text == "green"
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 3600)
    store.put([], since=4)
    assert versions() == [('"b"', 1)]


def test_a_text_of_a_change_that_never_came_is_not_shown(tmp_path):
    store = Catalogue(tmp_path)
    store.put([Document("a", "old")], since=1)
    store.put([Document("a", "never committed")], since=2)
    store.put([Document("b", "the change after it")], since=2)
    assert store.get(["a"])["a"].text == "old"


def test_altered_texts_and_files_of_other_versions_are_told(index):
    with sqlite3.connect(index.catalogue.path) as connection:
        connection.execute("UPDATE texts SET text = 'forged' WHERE id = '7'")
    assert index.catalogue.damage() == [
        f"{index.catalogue.path} is damaged: the row of document 7 is altered"
    ]
    with sqlite3.connect(index.catalogue.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(IndexFormatError, match="of another version"):
        index.catalogue.get(["apple"])


def test_an_answer_shows_the_texts_of_its_own_state(index):
    with TextIndex(index.path) as reader:
        before = reader.answers(["the apple is a red fruit"], k=3)[0].hits
        index.add_documents([Document("apple", "a green leaf", "Leaf")])
        index.remove(["sky"])
        assert reader.answers(["the apple is a red fruit"], k=3)[0].hits == before
        reader.index.refresh()
        titles = {hit.id: hit.title for hit in reader.answers(["leaf"], k=3)[0].hits}
        assert titles == {"apple": "Leaf", 7: ""}


def test_spectra_leave_out_what_another_thread_moves_away_from(tmp_path, tiny_model):
    settings = {"single_vector": True, "keep_tokens": "float16", "k": 4}
    with TextIndex(tmp_path / "kept", model=str(tiny_model), **settings) as index:
        index.add_documents(DOCUMENTS)
        done = threading.Event()

        def come_and_go():
            while not done.is_set():
                index.remove(["sky"])
                index.add_documents(DOCUMENTS[1:2])

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
        index.answers(["red"], rerank="maxsim")


def test_spectra_come_from_kept_tokens_or_from_the_texts(index, tmp_path, tiny_model):
    settings = {"single_vector": True, "keep_tokens": "float16", "k": 4}
    with TextIndex(tmp_path / "kept", model=str(tiny_model), **settings) as kept:
        kept.add_documents(DOCUMENTS)
        kept.catalogue.put([Document("apple", "")], since=2)
        from_tokens, from_texts = kept.spectra(["apple", "?"]), index.spectra(["apple", "?"])
    assert list(from_tokens) == list(from_texts) == ["apple"]
    np.testing.assert_allclose(from_tokens["apple"][:4], from_texts["apple"][:4], rtol=1e-2)


class TestOverride:
    @pytest.mark.parametrize("damage", ["not a database" * 100, "of another version"])
    def test_replaces_texts_that_cannot_be_read(self, index, damage):
        if damage == "of another version":
            with sqlite3.connect(index.catalogue.path) as connection:
                connection.execute("PRAGMA user_version = 1")
        else:
            index.catalogue.path.write_text(damage)
        with TextIndex(index.path, override=True, k=2) as new:
            new.add_documents([Document("a", "red")], [np.eye(8)])
            assert new.catalogue.get(["a", "apple"]).keys() == {"a"}
            assert new.catalogue.damage() == []

    def test_replaces_documents_and_texts_in_one_commit(self, index, monkeypatch):
        put = Catalogue.put

        def contested(*arguments):
            with pytest.raises(IndexLockedError):
                index.add_documents([Document("between", "red")], [np.eye(8)])
            assert len(TextIndex(index.path)) == 3  # and nothing is committed yet
            put(*arguments)

        with TextIndex(index.path, model=index.model, override=True, k=2) as new:
            assert len(new) == 0
            assert len(TextIndex(index.path)) == 3
            with monkeypatch.context() as patch:
                patch.setattr(Catalogue, "put", contested)
                new.add_documents([Document("after", "green")], [np.eye(8)])
        with TextIndex(index.path) as again:
            assert len(again) == 1
            assert again.catalogue.get(["between", "after", "sky"]).keys() == {"after"}

    @pytest.mark.parametrize(
        "settings",
        [{"k": 0}, {"nonsense": 1}, {"single_vector": True, "backend": "qdrant", "dtype": "int8"}],
    )
    def test_with_settings_that_cannot_be_empties_nothing(self, index, settings):
        with pytest.raises((TypeError, ValueError)):
            TextIndex(index.path, override=True, **settings)
        with TextIndex(index.path) as again:
            assert again.answers(["red fruit"])[0].hits == index.answers(["red fruit"])[0].hits

    def test_by_another_process_with_another_model_ends_the_use_of_the_old_one(
        self, index, tiny_model, tmp_path
    ):
        other = another_model(tiny_model, tmp_path / "other-model")
        reader = index.reopened()
        with TextIndex(index.path, model=str(other), override=True, k=4) as new:
            new.add_documents(DOCUMENTS[:1])
        for use in (lambda: reader.answers(["red"]), lambda: index.add_documents(DOCUMENTS)):
            with pytest.raises(ValueError, match=f"made anew with the model {other}; open it"):
                use()
        assert Catalogue(index.path).about["model"] == str(other)
        assert len(TextIndex(index.path)) == 1
        reader.close()

    def test_between_encoding_and_committing_is_noticed(self, index, tiny_model, tmp_path):
        other = another_model(tiny_model, tmp_path / "other-model")

        def make_anew(_):
            if index.catalogue.about["model"] != str(other):
                with TextIndex(index.path, model=str(other), override=True, k=4) as new:
                    new.add_documents(DOCUMENTS[:1])

        with pytest.raises(ValueError, match="made anew"):
            index.add_documents(DOCUMENTS, advance=make_anew)
        assert len(TextIndex(index.path)) == 1


class TestFirstWrite:
    def test_leaves_nothing_of_tables_that_were_never_finished(self, tmp_path, monkeypatch):
        store = Catalogue(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(
                catalogue_file,
                "_SCHEMA",
                (*catalogue_file._SCHEMA[:2], "and now for something else"),
            )
            with pytest.raises(sqlite3.OperationalError):
                store.put(DOCUMENTS, since=1)
        assert (store.get(["apple"]), store.about, store.damage()) == ({}, {}, [])
        store.put(DOCUMENTS, since=1)
        assert store.get(["apple"]) == {"apple": DOCUMENTS[0]}

    def test_an_empty_file_is_no_damage(self, tmp_path):
        store = Catalogue(tmp_path)
        store.path.touch()
        assert (store.get(["apple"]), store.about, store.damage()) == ({}, {}, [])
        assert store.of_file("apple") == {}

    def test_a_model_named_before_the_first_commit_binds_nobody(self, tmp_path, tiny_model):
        Catalogue(tmp_path / "index").put([], since=1, about={"model": "somebody/elses-model"})
        with TextIndex(tmp_path / "index", model=str(tiny_model), k=4) as index:
            index.add_documents(DOCUMENTS)
            assert index.catalogue.about["model"] == str(tiny_model)


def test_passages_are_found_by_their_file_whatever_their_numbers(tmp_path, tiny_model):
    ids = ["a.txt#1", "a.txt#3", "a.txt#12", "a.txt#x", "a.txt", "ä.txt#1", "b/a.txt#2", "a.txtt#1"]
    with TextIndex(tmp_path / "index", model=str(tiny_model), k=4) as index:
        index.add_documents([Document(i, "red") for i in ids])
        index.remove(["a.txt#3"])
        assert list(index.of_file("a.txt")) == ["a.txt#1", "a.txt#12"]
        assert list(index.of_file("ä.txt")) == ["ä.txt#1"]
        assert index.of_file("c.txt") == {}


def test_the_name_of_a_file_removes_its_passages_but_no_records(tmp_path, tiny_model):
    notes = tmp_path / "notes.txt"
    notes.write_text("the sea is water. " * 30)
    with TextIndex(tmp_path / "index", model=str(tiny_model), k=4) as index:
        passages = index.add(notes)
        assert len(passages) > 1
        index.add(["red", "blue", "green"], ids=["a.txt#1", 7, "sky"])
        for names in (["notes.txt", "nobody"], "a.txt"):
            with pytest.raises(UnknownDocumentError):
                index.remove(names)
        assert index.remove([passages[0], "notes.txt", 7]) == [*passages, 7]
        assert (len(index), index.passages) == (2, (0, 0))
        index.add_documents([Document("notes.txt", "the id of a document comes first")])
        index.add(notes)
        assert index.remove("notes.txt") == ["notes.txt"]


@pytest.mark.parametrize("backend", ["qdrant", "milvus"])
class TestServers:
    @pytest.fixture
    def served(self, backend, tmp_path, tiny_model):
        pytest.importorskip({"qdrant": "qdrant_client", "milvus": "milvus_lite"}[backend])
        settings = {"single_vector": True, "backend": backend, "keep_tokens": "float16", "k": 4}
        with TextIndex(tmp_path / "served", model=str(tiny_model), **settings) as served:
            served.add_documents(DOCUMENTS)
            yield served

    def test_texts_come_and_go_with_the_documents(self, served):
        (answer,) = served.answers(["the sky is blue"], k=3, explain=True)
        shown = {hit.id: (hit.title, hit.snippet) for hit in answer.hits}
        assert shown == {document.id: (document.title, document.text) for document in DOCUMENTS}
        served.add_documents([Document("apple", "a green leaf")])
        served.add_documents([Document("sky", "")], [np.eye(8)[:3]])
        served.remove([7])
        assert served.catalogue.get(["apple", "sky", 7]) == {
            "apple": Document("apple", "a green leaf")
        }
        assert len(served) == 2
        with pytest.raises(UnknownDocumentError):
            served.remove(["apple", "nobody"])
        assert served.catalogue.get(["apple"])
        assert list(served.spectra(["apple", 7])) == ["apple"]

    def test_an_override_empties_the_server_too(self, served, backend, tiny_model):
        served.close()
        settings = {"single_vector": True, "backend": backend, "k": 2}
        with TextIndex(served.path, model=str(tiny_model), override=True, **settings) as new:
            assert len(new) == 0
            new.add_documents(DOCUMENTS[:1])
            assert new.missing(["apple", "sky"]) == ["sky"]
            assert new.catalogue.get(["apple", "sky"]).keys() == {"apple"}

    def test_searches_and_changes_of_two_threads_keep_apart(self, served):
        reader = served.reopened()
        with ThreadPoolExecutor(1) as pool:
            changes = pool.submit(
                lambda: [
                    served.add_documents([Document(f"n{i}", "the sun is red")]) for i in range(10)
                ]
            )
            while not changes.done():
                assert len(reader.answers(["red sun"], k=3)[0].hits) == 3
            changes.result()
        assert len(reader) == 13


class TestFailedCommits:
    """The index commits, or does not, after its catalogue is written."""

    NEW = (Document("apple", "never committed"), Document("new", "never committed"))

    @pytest.fixture
    def failed(self, index, monkeypatch):
        """An index whose last change has failed after the catalogue was written."""
        with monkeypatch.context() as patch:
            patch.setattr(Manifest, "write", self.full_disk)
            with pytest.raises(OSError, match="full"):
                index.add_documents(self.NEW, [np.eye(8), np.eye(8)])
        assert index.catalogue.get(["new"])
        return index

    @staticmethod
    def full_disk(*_):
        raise OSError("the disk is full")

    def test_are_not_shown(self, failed):
        hits = failed.answers(["red"], k=5)[0].hits
        assert {hit.id: hit.snippet for hit in hits} == {d.id: d.text for d in DOCUMENTS}
        assert verify(failed.path) == []

    def test_do_not_come_to_life_by_an_ann_structure(self, tmp_path, monkeypatch):
        """It is committed after the documents, and another process may have failed in between."""
        pytest.importorskip("voyager")
        monkeypatch.setattr(accelerator, "_PENDING_DOCUMENTS", 1)
        with TextIndex(tmp_path / "index", k=2, single_vector=True, backend="voyager") as index:
            real = index.index._documents.build

            def build():
                index.catalogue.put(self.NEW, index.index.generation + 1)
                return real()

            index.index._documents.build = build
            index.add_documents([Document("later", "green")], [np.eye(8)])
            assert index.answers([np.eye(8)])[0].hits[0].snippet == "green"
            assert verify(index.path) == []
            index.index._documents.build = real
            index.add_documents([Document("last", "blue")], [np.eye(8)])
            assert index.catalogue.get(["new", "later"]).keys() == {"later"}

    @pytest.mark.parametrize("commit", ["add", "remove", "compact", "commits without texts"])
    def test_do_not_come_to_life_by_the_next_commit(self, failed, commit):
        if commit == "add":
            failed.add_documents([Document("later", "green")], [np.eye(8)])
        elif commit == "commits without texts":
            for _ in range(3):
                failed.index.remove_documents([7])
                failed.index.add_documents([7], [np.eye(8)])
            assert {hit.snippet for hit in failed.answers(["red"])[0].hits} == {
                document.text for document in DOCUMENTS
            }
            failed.add_documents([Document("later", "green")], [np.eye(8)])
        else:
            failed.remove([7])
            if commit == "compact":
                failed.catalogue.put(self.NEW, failed.index.generation + 1)
                before = failed.index.generation
                failed.compact()
                assert failed.index.generation == before + 1
        assert failed.catalogue.get(["apple", "new"]) == {"apple": DOCUMENTS[0]}
        assert failed.answers(["apple"], k=3)[0].hits
        assert verify(failed.path) == []

    def test_an_override_that_fails_leaves_documents_and_texts(self, index, monkeypatch):
        before = index.answers(["red"])[0].hits
        with TextIndex(index.path, override=True, k=2) as new:
            with monkeypatch.context() as patch:
                patch.setattr(Manifest, "write", self.full_disk)
                with pytest.raises(OSError, match="full"):
                    new.add_documents([Document("a", "red")], [np.eye(4)])
            assert verify(index.path) == []
            assert index.answers(["red"])[0].hits == before
            new.add_documents([Document("a", "red")], [np.eye(4)])
        assert verify(index.path) == []

    def test_an_override_that_is_killed_leaves_documents_and_texts(self, index, monkeypatch):
        before = index.answers(["red"])[0].hits
        with monkeypatch.context() as patch, TextIndex(index.path, override=True, k=2) as new:
            patch.setattr(Manifest, "write", self.full_disk)
            patch.setattr("pylate_eigenli.corpus.committing.recover", lambda path: None)
            with pytest.raises(OSError, match="full"):
                new.add_documents([Document("a", "red")], [np.eye(4)])
        with TextIndex(index.path) as again:
            assert again.answers(["red"])[0].hits == before
        assert verify(index.path) == []

    @pytest.mark.parametrize("suffix", ["-journal", "-wal"])
    def test_an_override_that_is_killed_leaves_no_journal_to_the_old_texts(
        self, index, suffix, monkeypatch
    ):
        """SQLite would undo in one file what a process had begun in another."""
        before = index.answers(["red"])[0].hits
        index.catalogue.file.set_aside(index.index.generation)
        index.catalogue.path.write_bytes(b"half a file")
        index.catalogue.path.with_name(f"texts.sqlite{suffix}").write_bytes(b"half a journal")
        with TextIndex(index.path) as again:
            assert again.answers(["red"])[0].hits == before
        assert verify(index.path) == []
        assert not list(index.path.glob("texts.sqlite?*"))

    def test_an_override_leaves_nothing_of_the_old_texts(self, index):
        with TextIndex(index.path, override=True, k=2) as new:
            new.add_documents([Document("a", "green")], [np.eye(8)])
        assert b"red fruit" not in b"".join(
            path.read_bytes() for path in index.path.glob("texts.sqlite*")
        )


class TestVerify:
    def test_names_documents_without_texts_and_texts_without_documents(self, index):
        with sqlite3.connect(index.catalogue.path) as connection:
            connection.execute("DELETE FROM texts WHERE id = '7'")
        index.index.remove_documents(["sky"])
        path = index.catalogue.path
        assert verify(index.path) == [
            f"1 documents of the index are not in {path}: 7",
            f'1 documents that the index does not hold are in {path}: "sky"',
        ]

    @pytest.mark.parametrize(
        "instead", ["nothing", "folder", "link", "empty", "loop", "pipe", "device", "other link"]
    )
    def test_names_a_file_that_is_lost(self, index, instead):
        path = index.catalogue.path
        path.rename(path.parent / "elsewhere")
        links = {"link": "nowhere", "loop": path.name, "device": "/dev/zero"}
        if instead == "folder":
            path.mkdir()
        elif instead == "empty":
            path.touch()
        elif instead == "pipe":
            os.mkfifo(path)
        elif instead != "nothing":
            path.symlink_to(links.get(instead, "elsewhere"))
        (line,) = verify(index.path)
        assert str(path) in line
        if instead not in ("nothing", "empty"):
            for use in (lambda: index.answers(["red"]), lambda: index.remove([7])):
                with pytest.raises(IndexFormatError, match=r"texts.sqlite is not a file"):
                    use()

    @pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm", ".of-1", ".of-7"])
    @pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
    def test_names_what_is_no_file_of_sqlite(self, index, suffix, make):
        make(f"{index.catalogue.path}{suffix}")
        (line,) = verify(index.path)
        assert f"texts.sqlite{suffix} is not a file" in line
        if make is os.mkdir:
            with pytest.raises(IndexFormatError, match=rf"texts.sqlite{suffix} is not a file"):
                TextIndex(index.path, override=True).add_documents([Document(1)], [np.eye(8)])

    @pytest.mark.parametrize("text", ["", "green"])
    def test_an_index_made_without_texts_is_sound(self, tmp_path, text):
        path = tmp_path / "index"
        with open_index(path, k=2) as bare:
            bare.add_documents(["bare"], [np.eye(8)])
        assert verify(path) == []
        if text:
            with TextIndex(path) as index:
                index.add_documents([Document("bare", text)], [np.eye(8)])
            index.catalogue.path.unlink()
            (line,) = verify(path)
            assert "texts.sqlite is missing" in line

    def test_names_lost_texts_of_a_database(self, tmp_path):
        pytest.importorskip("qdrant_client")
        path = tmp_path / "index"
        with TextIndex(path, k=2, single_vector=True, backend="qdrant") as index:
            index.add_documents([Document("apple", "red")], [np.eye(8)])
        assert verify(path) == []
        index.catalogue.path.unlink()
        assert len(verify(path)) == 1

    def test_names_a_model_that_has_changed(self, tmp_path, tiny_model):
        model = tmp_path / "model"
        shutil.copytree(tiny_model, model)
        with TextIndex(tmp_path / "index", model=str(model), k=4) as index:
            index.add_documents(DOCUMENTS)
        assert verify(tmp_path / "index") == []
        (model / "config.json").write_text((model / "config.json").read_text() + " ")
        assert verify(tmp_path / "index") == [
            f"the model {model} has changed since it encoded the documents"
        ]

    def test_documents_that_came_without_texts_are_sound(self, index):
        index.add_documents([Document("vectors only")], [np.eye(8)])
        index.compact()
        assert verify(index.path) == []


def test_texts_without_a_state_are_replaced_one_by_one(tmp_path):
    store = Catalogue(tmp_path)
    store.put(DOCUMENTS, since=ALWAYS)
    store.put([Document("sky", "grey")], since=ALWAYS)
    assert store.get(["apple", "sky"]) == {
        "apple": DOCUMENTS[0],
        "sky": Document("sky", "grey"),
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


class TestStandardised:
    def test_learns_the_statistics_of_queries_from_its_first_texts(self, tmp_path, tiny_model):
        with TextIndex(tmp_path / "index", model=str(tiny_model), k=4, preset="plus") as index:
            index.add_documents(DOCUMENTS)
            assert index.index.knows_queries
            generation = index.index.generation
            index.add_documents([Document("new", "green grass")])
            assert index.index.generation == generation + 1  # learnt once
            found = index.answers(["red fruit"], k=4)[0].hits
        with TextIndex(tmp_path / "index") as again:
            assert again.answers(["red fruit"], k=4)[0].hits == found
        assert not verify(tmp_path / "index")

    def test_without_a_model_learns_nothing(self, tmp_path):
        with TextIndex(tmp_path / "index", k=2, preset="plus") as index:
            index.add_documents([Document("a", "text")], [np.eye(8, dtype=np.float32)[:4]])
            assert not index.index.knows_queries

    def test_likely_queries_are_beginnings_of_several_lengths(self, tmp_path):
        with TextIndex(tmp_path / "index") as index:
            texts = [Document(i, "one two three four five " * 5) for i in range(600)]
            likely = index.likely_queries([*texts, Document("empty", " ")])
        assert 256 <= len(likely) <= 302
        assert {len(text.split()) for text in likely} == set(range(3, 17))
