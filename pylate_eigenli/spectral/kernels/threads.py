"""Run compiled kernels on as many threads as torch uses."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch


def for_ranges(task: Callable[[slice], None], n: int, step: int) -> None:
    """Call ``task`` for consecutive slices of at most ``step`` items that cover 0:n."""
    parts = [slice(begin, min(begin + step, n)) for begin in range(0, n, step)]
    workers = min(torch.get_num_threads(), len(parts))
    if workers <= 1:
        for part in parts:
            task(part)
        return
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(task, parts))  # reading the results re-raises the exception of a task
