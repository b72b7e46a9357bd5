"""PageIndex: the pages of a folder, searched by questions.

Pages are kept as subspaces in an :class:`pylate_eigenli.EigenLIIndex`, their images nowhere. A
catalogue beside it, ``pages.json``, says which folder and model the index is of and how each file
looked when it was read, so that a later update reads what is new or has changed, and no more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from ..errors import IndexFormatError
from ..indexes.eigenli import EigenLIIndex
from ..models.vision import VisionColBERT
from ..storage.disk import replace_file
from .pages import Page, PageReader, page_id, split_page_id

CATALOGUE = "pages.json"
_FORMAT = 1
# Pages that a process that is killed may have to embed again.
_PAGES_PER_COMMIT = 32


@dataclass(frozen=True)
class PageHit:
    """A page that answers a question; ``page`` is None for a file that is a single image.

    Examples
    --------
    >>> PageHit("annual.pdf", 3, 21.5).page
    3
    """

    document: str
    page: int | None
    score: float


@dataclass(frozen=True)
class Update:
    """How many pages an update has added, and how many of changed or deleted files removed."""

    added: int
    removed: int


@dataclass
class _File:
    """How a file looked when it was read, and the highest number of its pages in the index."""

    size: int
    mtime_ns: int
    pages: int = 0


@dataclass
class _Catalogue:
    folder: str
    model: str
    files: dict[str, _File] = field(default_factory=dict)


class PageIndex:
    """An index of the pages of one folder.

    Parameters
    ----------
    index_folder
        Where the index is kept; made by the first update.
    k
        Number of directions kept per page; by default 32, or what the index was made with.

    Examples
    --------
    >>> model = VisionColBERT("TomoroAI/tomoro-colqwen3-embed-4b")  # doctest: +SKIP
    >>> index = PageIndex("reports.pages")  # doctest: +SKIP
    >>> index.update(PageReader("reports"), model)  # doctest: +SKIP
    Update(added=412, removed=0)
    >>> index.search(model, "How did revenue develop?", k=1)  # doctest: +SKIP
    [PageHit(document='2024.pdf', page=12, score=9.31)]
    """

    def __init__(self, index_folder: str | Path, k: int | None = None) -> None:
        self._path = Path(index_folder) / CATALOGUE
        self._catalogue = _read(self._path) if self._path.exists() else None
        self.index = EigenLIIndex(str(index_folder), "pages", k=k, show_progress=False)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def folder(self) -> Path:
        """The folder that the pages are of."""
        return Path(self._known.folder)

    @property
    def model_name_or_path(self) -> str:
        """The model that the pages were embedded with."""
        return self._known.model

    @property
    def _known(self) -> _Catalogue:
        if self._catalogue is None:
            raise FileNotFoundError(f"there is no index of pages in {self._path.parent}")
        return self._catalogue

    def update(
        self,
        reader: PageReader,
        model: VisionColBERT,
        batch_size: int = 4,
        show_progress: bool = True,
    ) -> Update:
        """Bring the index up to date with the files.

        Pages of files that have changed or are gone are removed first. New pages are committed
        every few dozen; after an interruption the next update goes on from there.

        Parameters
        ----------
        reader
            The folder, and how to read it.
        model
            The same one for all updates.
        batch_size
            Number of pages to embed at a time. Memory is bounded by that, and by the embeddings
            of the pages of one commit.
        show_progress
            Whether to show a progress bar.
        """
        catalogue = self._claim(reader, model)
        stamps = {document: _stamp(reader.folder / document) for document in reader.documents}
        removed = self._forget_changed(catalogue)
        added = 0
        pages = _embedded(reader.read(known=self.index), model, batch_size)
        with tqdm(desc="Indexing pages", unit="page", disable=not show_progress) as progress:
            while chunk := list(islice(pages, _PAGES_PER_COMMIT)):
                for document, number, _ in chunk:
                    file = catalogue.files.setdefault(document, stamps[document])
                    file.pages = max(file.pages, number or 0)
                # First the catalogue: it may know of pages that the index lacks, which are read
                # again, but not the other way round, or they could never be recognised as old.
                self._save(catalogue)
                ids = [page_id(document, number) for document, number, _ in chunk]
                self.index.add_documents(ids, [embedding for _, _, embedding in chunk])
                added += len(chunk)
                progress.update(len(chunk))
        return Update(added, removed)

    def search(self, model: VisionColBERT, question: str, k: int = 10) -> list[PageHit]:
        """Return the k best pages for a question, best first."""
        if not len(self):
            return []
        return [
            PageHit(*split_page_id(str(result["id"])), float(result["score"]))
            for result in self.index(model.encode_queries([question]), k=k)[0]
        ]

    def _claim(self, reader: PageReader, model: VisionColBERT) -> _Catalogue:
        """Return the catalogue of this folder and model, a new one if there is none."""
        name = model.model_name_or_path
        # A relative path would mean something else in the next working folder.
        wanted = _Catalogue(
            str(reader.folder.resolve()), str(Path(name).resolve()) if Path(name).is_dir() else name
        )
        if self._catalogue is None:
            self._catalogue = wanted
        for what in ("folder", "model"):
            given, kept = getattr(wanted, what), getattr(self._catalogue, what)
            if given != kept:
                raise ValueError(f"{self._path.parent} is of the {what} {kept}, not of {given}")
        return self._catalogue

    def _forget_changed(self, catalogue: _Catalogue) -> int:
        """Remove the pages of files that are not what they were; return their number."""
        folder = Path(catalogue.folder)
        changed = [
            document
            for document, file in catalogue.files.items()
            if not (folder / document).is_file()
            or asdict(_stamp(folder / document)) | {"pages": file.pages} != asdict(file)
        ]
        outdated = [
            identifier
            for document in changed
            for number in (None, *range(1, catalogue.files[document].pages + 1))
            if (identifier := page_id(document, number)) in self.index
        ]
        if outdated:
            self.index.remove_documents(outdated)
        for document in changed:
            del catalogue.files[document]
        if changed:
            self._save(catalogue)
        return len(outdated)

    def _save(self, catalogue: _Catalogue) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps({"format": _FORMAT, **asdict(catalogue)}, indent=1)
        replace_file(self._path, content.encode())


def _embedded(
    pages: Iterator[Page], model: VisionColBERT, batch_size: int
) -> Iterator[tuple[str, int | None, NDArray[np.float32]]]:
    """Yield document, number and embeddings of pages; images are let go after each batch."""
    while batch := list(islice(pages, batch_size)):
        embeddings = model.encode_images([page.image for page in batch], batch_size)
        for page, embedding in zip(batch, embeddings, strict=True):
            yield page.document, page.number, embedding


def _stamp(path: Path) -> _File:
    status = path.stat()
    return _File(status.st_size, status.st_mtime_ns)


def _read(path: Path) -> _Catalogue:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']} is not known to this version")
        files = {document: _File(**file) for document, file in content["files"].items()}
        return _Catalogue(str(content["folder"]), str(content["model"]), files)
    except (KeyError, TypeError, ValueError) as error:
        raise IndexFormatError(f"{path} cannot be read: {error}") from error
