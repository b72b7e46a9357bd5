from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from milvus_server import RealMilvus


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a PyLate model that is made within a second."""
    from tiny_model import tiny_colbert

    folder = tmp_path_factory.mktemp("tiny")
    tiny_colbert(folder / "bert").save(str(folder / "model"))
    return folder / "model"


@pytest.fixture(scope="session")
def real_milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealMilvus]:
    """One real server for all tests that ask for it, started by the first."""
    pytest.importorskip("pymilvus")
    server = RealMilvus(tmp_path_factory.mktemp("milvus"))
    yield server
    server.kill()
