"""Run compiled kernels on as many threads as torch uses."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch


def for_ranges(task: Callable[[int, int], None], n: int, step: int) -> None:
    """Call ``task(begin, end)`` for consecutive ranges of at most ``step`` items that cover 0:n."""
    starts = range(0, n, step)
    workers = min(torch.get_num_threads(), len(starts))
    if workers <= 1:
        for begin in starts:
            task(begin, min(begin + step, n))
        return
    with ThreadPoolExecutor(workers) as pool:
        # Reading the results re-raises the exception of a task.
        list(pool.map(lambda begin: task(begin, min(begin + step, n)), starts))
