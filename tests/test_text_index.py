"""TextIndex: texts and vectors stay together, and an index knows its model."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from pylate_eigenli import UnknownDocumentError
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
    texts.put(TextDocument(i, repr(i)) for i in ids)
    assert {i: document.text for i, document in texts.get(ids).items()} == {i: repr(i) for i in ids}
    texts.discard([7, "unknown"])
    assert list(texts.get(ids)) == ids[1:]


def test_re_ranking_is_refused_where_nothing_is_kept_for_it(index):
    with pytest.raises(ValueError, match="only an index of single vectors"):
        index.search(["red"], rerank="maxsim")


def test_spectra_come_from_kept_tokens_or_from_the_texts(index, tmp_path, tiny_model):
    settings = {"single_vector": True, "keep_tokens": "float16", "k": 4}
    with TextIndex(tmp_path / "kept", model=str(tiny_model), **settings) as kept:
        kept.add(DOCUMENTS)
        kept.texts.discard(["apple"])
        from_tokens, from_texts = kept.spectra(["apple", "?"]), index.spectra(["apple", "?"])
    assert list(from_tokens) == list(from_texts) == ["apple"]
    np.testing.assert_allclose(from_tokens["apple"][:4], from_texts["apple"][:4], rtol=1e-2)
