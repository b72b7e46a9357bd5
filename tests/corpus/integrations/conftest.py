"""An index of texts with metadata, for the retrievers of all frameworks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pylate_eigenli import TextIndex

TEXTS = {
    "apple": ("the apple is a red fruit", {"kind": "fruit", "year": 2020}),
    "pear": ("the pear is a green fruit", {"kind": "fruit", "year": 2022}),
    "sky": ("the sky is blue", {"kind": "place", "year": 2024}),
    "sea": ("the sea is blue water", {"kind": "place", "year": 2021}),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[TextIndex]:
    folder = tmp_path_factory.mktemp("index")
    with TextIndex(folder / "index", model=str(tiny_model), k=4) as index:
        texts, metadata = zip(*TEXTS.values(), strict=True)
        index.add(texts, ids=list(TEXTS), titles=["Apple", "", "", ""], metadata=metadata)
        yield index


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
