"""An index of pages follows its folder, and survives being interrupted."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.rendered import encrypted_pdf, sheet
from numpy.typing import NDArray

from pylate_eigenli import EigenLISVIndex, TokenProjection
from pylate_eigenli.corpus import page_index
from pylate_eigenli.corpus.catalogue import Catalogue
from pylate_eigenli.corpus.document import Document
from pylate_eigenli.corpus.page_index import PageIndex, open_corpus
from pylate_eigenli.corpus.pages import PageReader
from pylate_eigenli.corpus.text_index import TextIndex
from pylate_eigenli.corpus.updating import Update
from pylate_eigenli.models.vision import VisionColBERT
from pylate_eigenli.models.vision_encoder import VisionEncoder

ALL = {
    *("annex/tables.pdf#1", "annex/tables.pdf#2", "letter.png"),
    *("annual.pdf#1", "annual.pdf#2", "annual.pdf#3"),
}


def update(index: PageIndex, folder: Path) -> Update:
    return index.update(PageReader(folder))


def ids(index: PageIndex) -> set[str]:
    return {str(result["id"]) for result in index.index(np.eye(1, 320, dtype=np.float32), k=99)[0]}


def by_definition(query: Any, documents: Iterable[Any], k: int) -> NDArray[np.float64]:
    """The squared length of a query's tokens in the span of k leading eigenvectors."""
    moments = [np.asarray(x, np.float64).T @ np.asarray(x, np.float64) for x in documents]
    bases = [np.linalg.eigh(moment)[1][:, -k:] for moment in moments]
    return np.array([((np.asarray(query) @ basis) ** 2).sum() for basis in bases])


@pytest.fixture
def encoder(checkpoints: Path) -> VisionEncoder:
    return VisionEncoder(str(checkpoints / "colqwen3"))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "index"


def test_a_page_is_scored_as_the_model_and_the_subspace_say(
    folder: Path, target: Path, colqwen3: VisionColBERT, checkpoints: Path
) -> None:
    index = PageIndex(target, model=str(checkpoints / "colqwen3"), k=16, preset="paper")
    assert update(index, folder) == Update(added=6, files=3)
    question = "how did revenue develop?"
    pages = list(PageReader(folder).read())
    embeddings = colqwen3.encode((page.image for page in pages), is_query=False)
    scores = by_definition(colqwen3.encode(question), embeddings, k=16)
    (answer,) = PageIndex(target).answers([question], k=3, explain=True)
    hits = answer.hits
    best = np.argsort(-scores)[:3]
    assert [(hit.file, hit.page) for hit in hits] == [
        (pages[i].document, pages[i].number) for i in best
    ]
    np.testing.assert_allclose([hit.score for hit in hits], scores[best], rtol=1e-3)
    for hit in hits:
        assert len(answer.tokens) == len(hit.contributions)
        assert hit.contributions.sum() == pytest.approx(hit.score, rel=1e-4)
    with open_corpus(target).convert(target.with_name("new"), dtype="float32") as new:
        (again,) = new.answers([question], k=3)
        assert isinstance(new, PageIndex)
        assert [(hit.file, hit.page) for hit in again.hits] == [(h.file, h.page) for h in hits]


class TestUpdate:
    def test_reads_nothing_twice(self, folder: Path, target: Path, encoder: VisionEncoder) -> None:
        update(PageIndex(target, model=encoder), folder)
        assert update(PageIndex(target), folder) == Update(unchanged=6)

    def test_follows_new_changed_and_deleted_files(
        self, folder: Path, target: Path, encoder: VisionEncoder
    ) -> None:
        update(PageIndex(target, model=encoder), folder)
        (folder / "annex/tables.pdf").unlink()
        sheet("another letter", size=(300, 200)).save(folder / "letter.png")
        sheet("a single page is left").save(folder / "annual.pdf")
        sheet("a photograph").save(folder / "photo.jpg")
        os.utime(folder / "letter.png", ns=(1, 1))
        index = PageIndex(target, model=encoder)
        # Three files are new or changed; a changed one replaces its pages, and loses two.
        assert update(index, folder) == Update(added=3, removed=4, files=3)
        assert ids(index) == {"annual.pdf#1", "letter.png", "photo.jpg"}
        assert update(index, folder) == Update(unchanged=3)

    def test_goes_on_where_it_was_interrupted(
        self,
        folder: Path,
        target: Path,
        encoder: VisionEncoder,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(page_index, "_PAGES_PER_COMMIT", 2)

        class Interrupted(PageReader):
            rendered = 0

            def _render(self, file, page):
                self.rendered += 1
                if self.rendered == 6:
                    raise KeyboardInterrupt
                return super()._render(file, page)

        index = PageIndex(target, model=encoder)
        with pytest.raises(KeyboardInterrupt):
            index.update(Interrupted(folder), batch_size=1)
        index = PageIndex(target, model=encoder)
        assert len(index) == 4
        assert update(index, folder) == Update(added=2, unchanged=4, files=2)
        assert ids(index) == ALL

    def test_of_one_file_leaves_the_others_alone(
        self, folder: Path, target: Path, encoder: VisionEncoder
    ) -> None:
        index = PageIndex(target, model=encoder)
        update(index, folder)
        assert update(index, folder / "letter.png") == Update(unchanged=1)
        assert ids(index) == ALL

    def test_lists_what_cannot_be_read(
        self, folder: Path, target: Path, encoder: VisionEncoder
    ) -> None:
        (folder / "secret.pdf").write_bytes(encrypted_pdf())
        reader = PageReader(folder)
        PageIndex(target, model=encoder).update(reader)
        assert list(reader.skipped.items()) == [("secret.pdf", "encrypted")]

    def test_of_some_pages_leaves_the_others_alone(
        self, folder: Path, target: Path, encoder: VisionEncoder
    ) -> None:
        index = PageIndex(target, model=encoder)
        update(index, folder)
        index.update(PageReader(folder, pages={2}))
        assert ids(index) == ALL

    def test_of_a_file_that_cannot_be_read_any_more_keeps_its_pages(
        self, folder: Path, target: Path, encoder: VisionEncoder
    ) -> None:
        index = PageIndex(target, model=encoder)
        update(index, folder)
        (folder / "annual.pdf").write_bytes(b"cut off")
        assert update(index, folder) == Update(unchanged=3)
        assert ids(index) == ALL

    def test_can_encode_unchanged_pages_again(
        self, folder: Path, target: Path, encoder: VisionEncoder
    ) -> None:
        index = PageIndex(target, model=encoder)
        update(index, folder)
        again = index.update(PageReader(folder), replace=True)
        assert again == Update(added=6, files=3)
        assert ids(index) == ALL

    def test_is_refused_for_another_folder_or_model(
        self, folder: Path, target: Path, encoder: VisionEncoder, checkpoints: Path
    ) -> None:
        update(PageIndex(target, model=encoder), folder)
        with pytest.raises(ValueError, match=r"is of the folder .*reports, not of .*annex"):
            update(PageIndex(target), folder / "annex")
        with pytest.raises(ValueError, match=r"with the model .*colqwen3, not .*colpali"):
            PageIndex(target, model=str(checkpoints / "colpali"))


class TestCatalogue:
    def test_a_folder_without_one_holds_no_index(self, target: Path) -> None:
        with pytest.raises(FileNotFoundError, match="no index of pages in"):
            _ = PageIndex(target).folder

    def test_texts_and_pages_are_told_apart(
        self, folder: Path, target: Path, encoder: VisionEncoder, tmp_path: Path
    ) -> None:
        update(PageIndex(target, model=encoder), folder)
        with pytest.raises(ValueError, match="holds pages, not texts"):
            TextIndex(target)
        with TextIndex(tmp_path / "texts", k=2) as texts:
            texts.add_documents([Document("a", "red")], [np.eye(8)])
        for opened, kind in ((target, PageIndex), (tmp_path / "texts", TextIndex)):
            assert type(open_corpus(opened)) is kind

    def test_pages_are_named_with_their_file_and_number(
        self, folder: Path, target: Path, encoder: VisionEncoder
    ) -> None:
        update(PageIndex(target, model=encoder), folder)
        known = Catalogue(target).get(["annual.pdf#2", "letter.png"])
        assert [(d.title, d.file, d.page) for d in known.values()] == [
            ("annual.pdf, page 2", "annual.pdf", 2),
            ("letter.png", "letter.png", None),
        ]
        assert all(document.fingerprint for document in known.values())

    def test_a_document_that_is_no_page_is_never_read_from_disk(
        self, folder: Path, target: Path, encoder: VisionEncoder
    ) -> None:
        index = PageIndex(target, model=encoder)
        update(index, folder)
        with pytest.raises(ValueError, match=r"'\.\./letter\.png' cannot be read"):
            index.add_documents([Document("../letter.png", "a text")])
        index.add_documents([Document("../letter.png", "a text")], [np.eye(4, 320)])
        assert list(index.spectra(["../letter.png", "letter.png"])) == ["letter.png"]


def test_single_vectors_of_320_dimensions_go_through_128(
    folder: Path, tmp_path: Path, colqwen3: VisionColBERT
) -> None:
    pages = list(PageReader(folder).read())
    embeddings = colqwen3.encode([page.image for page in pages], is_query=False)
    projection = TokenProjection.fit(embeddings, dim=128)
    index = EigenLISVIndex(
        str(tmp_path),
        k=16,
        preset="paper",
        dtype="float32",
        token_projection=projection,
        show_progress=False,
    )
    index.add_documents([page.id for page in pages], embeddings)
    queries = colqwen3.encode(["staff by country", "who wrote the letter?"])
    projected = [projection.transform(x) for x in (queries, embeddings)]
    for hits, query in zip(index(queries, k=6), projected[0], strict=True):
        scores = by_definition(query, projected[1], k=16)
        order = np.argsort(-scores)
        assert [hit["id"] for hit in hits] == [pages[i].id for i in order]
        np.testing.assert_allclose([hit["score"] for hit in hits], scores[order], rtol=1e-3)
