"""Batching: together when busy, at once when idle, and a bad request fails alone."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pylate_eigenli.server.batching import Batcher, OverloadedError


def test_requests_that_arrive_while_one_is_answered_share_the_next_batch() -> None:
    release, sizes = threading.Event(), []

    def answer(numbers):
        sizes.append(len(numbers))
        if len(sizes) == 1:
            release.wait(30)
        return [-number for number in numbers]

    async def scenario():
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(answer, executor, max_batch=4)
            first = asyncio.create_task(batcher(0))
            while not sizes:
                await asyncio.sleep(0.001)
            rest = [asyncio.create_task(batcher(number)) for number in range(1, 7)]
            await asyncio.sleep(0)
            rest[0].cancel()  # whoever hangs up is not waited for
            release.set()
            return await asyncio.gather(first, *rest[1:])

    assert asyncio.run(scenario()) == [0, -2, -3, -4, -5, -6]
    assert sizes == [1, 3, 2]


def test_a_batch_is_bounded_by_the_size_of_its_requests() -> None:
    batches: list[list[int]] = []

    def answer(sizes):
        batches.append(list(sizes))
        return sizes

    async def scenario():
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(answer, executor, max_batch=10, size=lambda size: size)
            return await asyncio.gather(*map(batcher, [3, 7, 1, 25, 9, 1]))

    assert asyncio.run(scenario()) == [3, 7, 1, 25, 9, 1]
    assert batches == [[3, 7], [1], [25], [9, 1]]


def test_a_bad_request_fails_alone() -> None:
    def answer(numbers):
        if 3 in numbers:
            raise ValueError("three")
        return [number * 2 for number in numbers]

    async def scenario():
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(answer, executor)
            return await asyncio.gather(*map(batcher, range(5)), return_exceptions=True)

    results = asyncio.run(scenario())
    assert isinstance(results.pop(3), ValueError)
    assert results == [0, 2, 4, 8]


def test_too_many_waiting_requests_are_refused() -> None:
    async def scenario():
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(list, executor, max_waiting=2)
            return await asyncio.gather(*map(batcher, "abc"), return_exceptions=True)

    *answered, refused = asyncio.run(scenario())
    assert answered == ["a", "b"]
    with pytest.raises(OverloadedError):
        raise refused
