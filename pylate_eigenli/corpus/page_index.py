"""PageIndex: the pages of a folder, searched by questions.

The index keeps a subspace of each page. The images stay in the folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..models.encoder import Encoder
from ..models.vision_encoder import VisionEncoder
from .catalogue import Catalogue, holding
from .corpus_index import CorpusIndex
from .document import Document
from .page_files import MAX_PIXELS
from .pages import PageReader
from .sandbox import PageFile
from .text_index import TextIndex
from .updating import Progress, Update, no_progress, update

_DPI = 144
# A killed process loses at most this many encoded pages.
_PAGES_PER_COMMIT = 32


class PageIndex(CorpusIndex):
    """An index of the pages of one folder.

    Parameters
    ----------
    folder
        The folder of the index; made by the first update.
    model
        A vision model, or its name or path. By default the one the index was made with; another
        one is refused.
    settings
        Further options of :class:`pylate_eigenli.corpus.corpus_index.CorpusIndex`.

    Examples
    --------
    >>> model = "TomoroAI/tomoro-colqwen3-embed-4b"
    >>> index = PageIndex("reports.pages", model=model)  # doctest: +SKIP
    >>> index.update(PageReader("reports"))  # doctest: +SKIP
    Update(added=412, unchanged=0, removed=0, files=12)
    >>> (hit,) = index.search("How did revenue develop?", top=1)  # doctest: +SKIP
    >>> hit.file, hit.page  # doctest: +SKIP
    ('2024.pdf', 12)
    """

    holds = "pages"

    def _encoder_of(self, name: str) -> VisionEncoder:
        return VisionEncoder(name)

    @property
    def folder(self) -> Path:
        """The folder of the pages."""
        folder = self._facts.get("folder") or self._about.get("folder")
        if folder is None:
            raise FileNotFoundError(f"there is no index of pages in {self.path}")
        return Path(folder)

    def _origin(self) -> dict[str, str]:
        return {**super()._origin(), "folder": str(self.folder)}

    def contents(self, documents: Sequence[Document]) -> list[Any]:
        """Return the pages as images; None for those that cannot be rendered any more."""
        return [self._rendered(document) for document in documents]

    def _rendered(self, document: Document) -> Any:
        if document.file is None:
            return None
        try:
            return PageFile(self.folder / document.file, _DPI, MAX_PIXELS).render(document.page)
        except (OSError, ValueError):  # the file may have changed in any way
            return None

    def about(self) -> dict[str, Any]:
        """Return what the index holds and how it was made, as JSON values."""
        return {**super().about(), "folder": str(self.folder)}

    def update(
        self,
        reader: PageReader,
        *,
        batch_size: int = 4,
        replace: bool = False,
        progress: Progress = no_progress,
    ) -> Update:
        """Bring the index up to date with the files of its folder.

        Pages of new and changed files are added, those of deleted files removed.

        Parameters
        ----------
        reader
            The folder of the index, or a file in it, and how to read it.
        batch_size
            Number of pages to encode at a time.
        replace
            Whether to encode unchanged pages again.
        progress
            Called with the numbers of files and of pages done since the last call.
        """
        folder = reader.folder.resolve()
        kept = self._about.setdefault("folder", str(folder))
        if kept != str(folder):
            raise ValueError(f"{self.path} is of the folder {kept}, not of {folder}")
        gone = self._of_deleted_files()
        if gone:
            self.remove(gone)
        done = update(
            self,
            reader.parts(),
            commit_size=_PAGES_PER_COMMIT,
            encode_size=batch_size,
            replace=replace,
            progress=progress,
        )
        return dataclasses.replace(done, removed=done.removed + len(gone))

    def _of_deleted_files(self) -> list[str]:
        deleted = [file for file in self.catalogue.files() if not (self.folder / file).is_file()]
        return [page for file in deleted for page in self.of_file(file)]


def open_corpus(
    path: str | Path, model: str | Encoder | None = None, *, trust_index: bool = False
) -> TextIndex | PageIndex:
    """Open the index of texts or of pages in a folder."""
    kind = PageIndex if holding(Catalogue(path).about) == PageIndex.holds else TextIndex
    return kind(path, model=model, trust_index=trust_index)
