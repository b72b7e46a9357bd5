from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small graphs are built faster, and the same every time, without the threads' help."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    if "faiss" in sys.modules:
        sys.modules["faiss"].omp_set_num_threads(1)
    yield
    torch.set_num_threads(threads)
