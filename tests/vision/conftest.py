from __future__ import annotations

from pathlib import Path

import pytest

for library in ("PIL", "torchvision", "pypdfium2", "colpali_engine"):
    pytest.importorskip(library, reason="needs pip install '.[vision]'")

from rendered import sheet  # noqa: E402
from tiny_vision import BUILDERS  # noqa: E402

from pylate_eigenli.vision import VisionColBERT  # noqa: E402


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny checkpoint of every layout."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for name, build in BUILDERS.items():
        build(folder / name)
    return folder


@pytest.fixture(scope="session")
def colqwen3(checkpoints: Path) -> VisionColBERT:
    return VisionColBERT(str(checkpoints / "colqwen3"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a PDF of three pages, one of two in a folder of its own, and a picture."""
    folder = tmp_path / "reports"
    (folder / "annex").mkdir(parents=True)
    for name, texts in {
        "annual.pdf": ["revenue grew by a third", "the board met nine times", "risks and outlook"],
        "annex/tables.pdf": ["energy by source", "staff by country"],
    }.items():
        first, *others = [sheet(text) for text in texts]
        first.save(folder / name, save_all=True, append_images=others)
    sheet("a scanned letter", size=(300, 200)).save(folder / "letter.png")
    return folder
