from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a PyLate model that is made within a second."""
    from tiny_model import tiny_colbert

    folder = tmp_path_factory.mktemp("tiny")
    tiny_colbert(folder / "bert").save(str(folder / "model"))
    return folder / "model"
