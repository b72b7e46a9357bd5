from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks.load import serving
from helpers.served import TEXTS, TOKEN

from pylate_eigenli.corpus.document import Document
from pylate_eigenli.corpus.text_index import TextIndex


@pytest.fixture(scope="session")
def make_index(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Makes an index of a few texts that keeps their tokens."""

    def make() -> Path:
        folder = tmp_path_factory.mktemp("served") / "index"
        settings = {"single_vector": True, "keep_tokens": "float16", "k": 4}
        with TextIndex(folder, model=str(tiny_model), **settings) as index:
            documents = [Document(f"d{i}", text, f"T{i}") for i, text in enumerate(TEXTS)]
            # What a hostile document would like the page to do.
            hostile = "<img src=x onerror=\"document.title='hacked'\"> the sea is red"
            index.add_documents(
                [*documents, Document("<b>evil</b>", hostile, "<script>alert(1)</script>")]
            )
        return folder

    return make


@pytest.fixture(scope="session")
def server(make_index: Callable[[], Path]) -> Iterator[str]:
    """The address of a server in a process of its own that asks for a token."""
    with serving(make_index(), "--token", TOKEN, "--max-megabytes", "1") as url:
        yield url
