"""Run compiled kernels on as many threads as torch uses."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

# Threads start when they are first needed and stay: to start them takes longer than a short scan.
_POOL = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="eigenli")


def for_ranges(task: Callable[[slice], None], n: int, step: int) -> None:
    """Call ``task`` for consecutive slices of at most ``step`` items that cover 0:n.

    The calling thread works as well, so that the work is done even if all others are busy.
    """
    parts = iter([slice(begin, min(begin + step, n)) for begin in range(0, n, step)])

    def work() -> None:
        for part in parts:
            task(part)

    others = min(torch.get_num_threads(), -(-n // step)) - 1
    helpers = [_POOL.submit(work) for _ in range(others)]
    try:
        work()
    finally:
        started = [helper for helper in helpers if not helper.cancel()]
        for helper in started:
            helper.result()  # re-raises the exception of a task
