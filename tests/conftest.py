"""Fixtures that tests of several folders share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from helpers.milvus_server import RealMilvus
from hypothesis import HealthCheck, settings

# What a machine does besides must not decide whether a test passes.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

# The key that signs indexes is not to be made in the home of whoever runs the tests.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="eigenli-state-")
# Nor Haystack's file of telemetry, which the import of Haystack makes.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

if TYPE_CHECKING:
    from pylate_eigenli.models.standard_library import Document
    from pylate_eigenli.models.vision import VisionColBERT


# A test that needs one of the two libraries for models asks for it by name, and is skipped in the
# environment of the other.
@pytest.fixture(scope="session")
def pylate() -> ModuleType:
    """PyLate, with its parts."""
    found: ModuleType = pytest.importorskip("pylate", reason="needs PyLate")
    for part in ("indexes", "losses", "models", "rank", "retrieve", "scores"):
        import_module(f"pylate.{part}")
    return found


@pytest.fixture(scope="session")
def multi_vector() -> ModuleType:
    """The part of sentence-transformers 6 for late interaction."""
    found: ModuleType = pytest.importorskip(
        "sentence_transformers.multi_vector_encoder", reason="needs sentence-transformers 6"
    )
    return found


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model of the installed library that is made within a second."""
    from helpers.tiny_model import tiny_model

    folder = tmp_path_factory.mktemp("tiny")
    tiny_model(folder / "bert").save(str(folder / "model"))
    return folder / "model"


@pytest.fixture(scope="session")
def real_milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealMilvus]:
    """One real server for all tests that ask for it, started by the first."""
    pytest.importorskip("pymilvus")
    server = RealMilvus(tmp_path_factory.mktemp("milvus"))
    yield server
    server.kill()


@pytest.fixture(scope="session")
def library() -> list[Document]:
    """Every docstring of the running interpreter's standard library."""
    from pylate_eigenli.models.standard_library import standard_library_documents

    return standard_library_documents()


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny checkpoint of every layout."""
    pytest.importorskip("colpali_engine", reason="needs pip install '.[vision]'")
    from helpers.tiny_vision import BUILDERS

    folder = tmp_path_factory.mktemp("checkpoints")
    for name, build in BUILDERS.items():
        build(folder / name)
    return folder


@pytest.fixture(scope="session")
def colqwen3(checkpoints: Path) -> VisionColBERT:
    from pylate_eigenli.models.vision import VisionColBERT

    return VisionColBERT(str(checkpoints / "colqwen3"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a PDF of three pages, one of two in a folder of its own, and a picture."""
    from helpers.rendered import sheet

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
