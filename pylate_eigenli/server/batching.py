"""Batching: requests that arrive while a batch is answered form the next batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class OverloadedError(RuntimeError):
    """Too many requests are waiting.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> async def crowded() -> int:
    ...     with ThreadPoolExecutor(1) as executor:
    ...         batcher = Batcher(list, executor, max_waiting=2)
    ...         calls = (batcher(n) for n in range(5))
    ...         answers = await asyncio.gather(*calls, return_exceptions=True)
    ...     return sum(isinstance(answer, OverloadedError) for answer in answers)
    >>> asyncio.run(crowded())
    3
    """


class Batcher(Generic[Request, Answer]):
    """Answers requests in batches: those that arrive during one batch form the next.

    No request waits for a batch to fill: if none is being answered, it is answered at once.

    Parameters
    ----------
    answer
        Returns an answer for each of a list of requests. If it raises, every request of the
        batch is tried on its own, so that a bad one fails alone.
    executor
        Where ``answer`` runs, with a single thread.
    max_batch
        Size of all requests of a call, at most; a larger request is answered alone.
    size
        Returns the size of a request. By default each has size 1.
    max_waiting
        Requests that may wait; more are refused.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> async def three() -> tuple[list[int], list[int]]:
    ...     sizes = []
    ...     def square(numbers):
    ...         sizes.append(len(numbers))
    ...         return [n * n for n in numbers]
    ...     with ThreadPoolExecutor(1) as executor:
    ...         batcher = Batcher(square, executor)
    ...         return await asyncio.gather(*(batcher(n) for n in range(3))), sizes
    >>> asyncio.run(three())
    ([0, 1, 4], [3])
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Request]], Sequence[Answer]],
        executor: Executor,
        *,
        max_batch: int = 64,
        size: Callable[[Request], int] = lambda _: 1,
        max_waiting: int = 1024,
    ) -> None:
        self._answer = answer
        self._executor = executor
        self._max_batch = max_batch
        self._size = size
        self._max_waiting = max_waiting
        self._waiting: deque[tuple[Request, asyncio.Future[Answer]]] = deque()
        self._at_work: asyncio.Task[None] | None = None

    async def __call__(self, request: Request) -> Answer:
        """Return the answer to a request."""
        if len(self._waiting) >= self._max_waiting:
            raise OverloadedError(f"{len(self._waiting)} requests are waiting; try again later")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if self._at_work is None or self._at_work.done():
            self._at_work = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft()]
            room = self._max_batch - self._size(batch[0][0])
            while self._waiting and (room := room - self._size(self._waiting[0][0])) >= 0:
                batch.append(self._waiting.popleft())
            # Clients that have hung up need no answer.
            batch = [(request, future) for request, future in batch if not future.done()]
            if batch:
                await self._answer_batch(batch)

    async def _answer_batch(self, batch: list[tuple[Request, asyncio.Future[Answer]]]) -> None:
        loop = asyncio.get_running_loop()
        requests = [request for request, _ in batch]
        try:
            answers = await loop.run_in_executor(self._executor, self._answer, requests)
        except Exception as error:
            if len(batch) > 1:
                for one in batch:
                    await self._answer_batch([one])
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)
