from __future__ import annotations

import pytest

from pylate_eigenli.demo.corpus import Document, standard_library_documents


@pytest.fixture(scope="session")
def library() -> list[Document]:
    """Every docstring of the running interpreter's standard library."""
    return standard_library_documents()
