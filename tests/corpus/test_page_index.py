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

from pylate_eigenli import EigenLISVIndex, IndexFormatError, TokenProjection
from pylate_eigenli.corpus import page_index
from pylate_eigenli.corpus.page_index import CATALOGUE, PageIndex, Update
from pylate_eigenli.corpus.pages import PageReader
from pylate_eigenli.models.vision import VisionColBERT

ALL = {
    *("annex/tables.pdf#1", "annex/tables.pdf#2", "letter.png"),
    *("annual.pdf#1", "annual.pdf#2", "annual.pdf#3"),
}


def update(index: PageIndex, folder: Path, model: VisionColBERT) -> Update:
    return index.update(PageReader(folder), model, show_progress=False)


def ids(index: PageIndex) -> set[str]:
    return {str(result["id"]) for result in index.index(np.eye(1, 320, dtype=np.float32), k=99)[0]}


def by_definition(query: Any, documents: Iterable[Any], k: int) -> NDArray[np.float64]:
    """The squared length of a query's tokens in the span of k leading eigenvectors."""
    moments = [np.asarray(x, np.float64).T @ np.asarray(x, np.float64) for x in documents]
    bases = [np.linalg.eigh(moment)[1][:, -k:] for moment in moments]
    return np.array([((np.asarray(query) @ basis) ** 2).sum() for basis in bases])


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "index"


def test_a_page_is_scored_as_the_model_and_the_subspace_say(
    folder: Path, target: Path, colqwen3: VisionColBERT
) -> None:
    index = PageIndex(target, k=16)
    assert update(index, folder, colqwen3) == Update(added=6, removed=0)
    question = "how did revenue develop?"
    pages = list(PageReader(folder).read())
    embeddings = colqwen3.encode_images(page.image for page in pages)
    scores = by_definition(colqwen3.encode(question), embeddings, k=16)
    hits = PageIndex(target).search(colqwen3, question, k=3)
    best = np.argsort(-scores)[:3]
    assert [(hit.document, hit.page) for hit in hits] == [
        (pages[i].document, pages[i].number) for i in best
    ]
    np.testing.assert_allclose([hit.score for hit in hits], scores[best], rtol=1e-3)


class TestUpdate:
    def test_reads_nothing_twice(self, folder: Path, target: Path, colqwen3: VisionColBERT) -> None:
        update(PageIndex(target), folder, colqwen3)
        assert update(PageIndex(target), folder, colqwen3) == Update(added=0, removed=0)

    def test_follows_new_changed_and_deleted_files(
        self, folder: Path, target: Path, colqwen3: VisionColBERT
    ) -> None:
        update(PageIndex(target), folder, colqwen3)
        (folder / "annex/tables.pdf").unlink()
        sheet("another letter", size=(300, 200)).save(folder / "letter.png")
        sheet("a single page is left").save(folder / "annual.pdf")
        sheet("a photograph").save(folder / "photo.jpg")
        os.utime(folder / "letter.png", ns=(1, 1))
        index = PageIndex(target)
        assert update(index, folder, colqwen3) == Update(added=3, removed=6)
        assert ids(index) == {"annual.pdf#1", "letter.png", "photo.jpg"}
        assert update(index, folder, colqwen3) == Update(added=0, removed=0)

    def test_goes_on_where_it_was_interrupted(
        self,
        folder: Path,
        target: Path,
        colqwen3: VisionColBERT,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(page_index, "_PAGES_PER_COMMIT", 2)

        class Interrupted(PageReader):
            def read(self, known=()):
                for i, page in enumerate(super().read(known)):
                    if i == 5:
                        raise KeyboardInterrupt
                    yield page

        with pytest.raises(KeyboardInterrupt):
            PageIndex(target).update(Interrupted(folder), colqwen3, 1, show_progress=False)
        index = PageIndex(target)
        assert len(index) == 4
        assert update(index, folder, colqwen3) == Update(added=2, removed=0)
        assert ids(index) == ALL

    def test_of_one_file_leaves_the_others_alone(
        self, folder: Path, target: Path, colqwen3: VisionColBERT
    ) -> None:
        index = PageIndex(target)
        update(index, folder, colqwen3)
        assert update(index, folder / "letter.png", colqwen3) == Update(added=0, removed=0)
        assert ids(index) == ALL

    def test_lists_what_cannot_be_read(
        self, folder: Path, target: Path, colqwen3: VisionColBERT
    ) -> None:
        (folder / "secret.pdf").write_bytes(encrypted_pdf())
        reader = PageReader(folder)
        PageIndex(target).update(reader, colqwen3, show_progress=False)
        assert [(entry.id, entry.reason) for entry in reader.skipped] == [
            ("secret.pdf", "encrypted")
        ]

    def test_is_refused_for_another_folder_or_model(
        self, folder: Path, target: Path, colqwen3: VisionColBERT, checkpoints: Path
    ) -> None:
        update(PageIndex(target), folder, colqwen3)
        with pytest.raises(ValueError, match=r"is of the folder .*reports, not of .*annex"):
            update(PageIndex(target), folder / "annex", colqwen3)
        other = VisionColBERT(str(checkpoints / "colpali"))
        with pytest.raises(ValueError, match=r"is of the model .*colqwen3, not of .*colpali"):
            update(PageIndex(target), folder, other)


class TestCatalogue:
    def test_a_folder_without_one_holds_no_index(self, target: Path) -> None:
        with pytest.raises(FileNotFoundError, match="no index of pages in"):
            _ = PageIndex(target).folder

    @pytest.mark.parametrize("content", ["", "[]", '{"format": 2}', '{"format": 1}'])
    def test_one_that_cannot_be_read_is_named(self, target: Path, content: str) -> None:
        target.mkdir()
        (target / CATALOGUE).write_text(content)
        with pytest.raises(IndexFormatError, match=CATALOGUE):
            PageIndex(target)


def test_single_vectors_of_320_dimensions_go_through_128(
    folder: Path, tmp_path: Path, colqwen3: VisionColBERT
) -> None:
    pages = list(PageReader(folder).read())
    embeddings = colqwen3.encode_images([page.image for page in pages])
    projection = TokenProjection.fit(embeddings, dim=128)
    index = EigenLISVIndex(
        str(tmp_path), k=16, dtype="float32", token_projection=projection, show_progress=False
    )
    index.add_documents([page.id for page in pages], embeddings)
    queries = colqwen3.encode(["staff by country", "who wrote the letter?"])
    projected = [projection.transform(x) for x in (queries, embeddings)]
    for hits, query in zip(index(queries, k=6), projected[0], strict=True):
        scores = by_definition(query, projected[1], k=16)
        order = np.argsort(-scores)
        assert [hit["id"] for hit in hits] == [pages[i].id for i in order]
        np.testing.assert_allclose([hit["score"] for hit in hits], scores[order], rtol=1e-3)
