"""Bodies become models, and a large one never keeps the others waiting."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import ValidationError

from pylate_eigenli.corpus import sandbox
from pylate_eigenli.server import schemas
from pylate_eigenli.server.app import create_app
from pylate_eigenli.server.bodies import Answers, parse, unpacked
from pylate_eigenli.server.parsing import CHILD, SMALL
from pylate_eigenli.server.schemas import AddRequest, SearchRequest
from pylate_eigenli.server.service import Service

_FILL = " " * SMALL  # JSON may have as many spaces as it likes


@pytest.fixture(scope="module")
def ask(make_index) -> Iterator[Callable[[Callable[..., Coroutine[Any, Any, Any]]], Any]]:
    """Run a scenario of a client."""
    service = Service(make_index())
    app = create_app(service)

    async def play(scenario: Callable[..., Coroutine[Any, Any, Any]]) -> Any:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await scenario(client)

    yield lambda scenario: asyncio.run(play(scenario))
    service.close()


async def post(client: httpx.AsyncClient, body: str) -> httpx.Response:
    return await client.post(
        "/search", content=body, headers={"Content-Type": "application/json"}, timeout=60
    )


def test_a_body_with_a_million_errors_is_refused_for_the_first() -> None:
    body = f'{{"queries_embeddings": [[[{"[]," * 1_000_000}1]]]}}'.encode()
    with pytest.raises(ValidationError) as refused:
        SearchRequest.model_validate_json(body)
    assert refused.value.error_count() == 1


def test_tokens_wait_for_their_turn_as_a_matrix() -> None:
    (document,) = AddRequest(documents=[{"id": 1, "embeddings": [[1, 2.5], [3, 4]]}]).documents
    assert document.embeddings.dtype == np.float32
    assert document.embeddings.tolist() == [[1, 2.5], [3, 4]]


@pytest.mark.parametrize(
    ("model", "body"),
    [
        ("SearchRequest", {"queries": ["\u00e9 \u4e16\n\"'"], "top": 3, "subset": [-(2**63), "a"]}),
        ("SearchRequest", {"queries_embeddings": [[[1, 2.5]], [[3, 4], [5, 6]]], "explain": True}),
        ("RemoveRequest", {"ids": [1, "1"]}),
        (
            "AddRequest",
            {
                "documents": [
                    {"id": 1, "text": '{"shape": [1, 1]}', "title": "model"},
                    {"id": "2", "embeddings": [[1, 2], [3, 4]]},
                    {"id": 3, "embeddings": [[5, 6]], "text": "three"},
                ]
            },
        ),
    ],
)
def test_the_child_process_parses_what_the_server_would(model: str, body: Any) -> None:
    sent = json.dumps(body).encode()
    here, there = parse(model, sent), unpacked(*Answers().parse(sent, model))
    assert isinstance(there, getattr(schemas, model))
    assert repr(there) == repr(here)


def test_while_a_large_body_is_parsed_others_are_answered(ask) -> None:
    """The child process is stopped, so that the large body takes as long as it can."""

    async def scenario(client: httpx.AsyncClient) -> None:
        large = f'{{"queries": ["red"], "top": 1 {_FILL}}}'
        first = await post(client, large)
        assert first.status_code == 200
        os.kill(CHILD._child.pid, signal.SIGSTOP)
        held = [asyncio.create_task(post(client, large)) for _ in range(3)]
        await asyncio.sleep(0.2)
        assert (await client.get("/health")).status_code == 200
        assert (await post(client, '{"queries": ["red"]}')).status_code == 200
        assert not any(task.done() for task in held)
        os.kill(CHILD._child.pid, signal.SIGCONT)
        for answer in await asyncio.gather(*held):
            assert answer.json()["results"] == first.json()["results"]

    ask(scenario)


def test_a_large_body_is_refused_in_the_words_for_a_small_one(ask) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        for body in ('{"queries": ["a"], "kk": 3', '{"queries": [[1]]', '{"queries": nothing'):
            small, large = [await post(client, f"{body} {fill}}}") for fill in ("", _FILL)]
            assert (small.status_code, small.text) == (large.status_code, large.text)

    ask(scenario)


def test_a_body_that_takes_too_much_to_parse_is_refused_alone(ask, monkeypatch) -> None:
    CHILD.close()
    monkeypatch.setattr(sandbox, "MEMORY", 300 << 20)

    async def scenario(client: httpx.AsyncClient) -> None:
        keys = ",".join(f'"{number}": 0' for number in range(500_000))
        refused = await post(client, f"{{{keys}}}")
        assert refused.status_code == 413
        assert "the body cannot be parsed: it takes more than 300 MB" in refused.json()["detail"]
        assert (await post(client, f'{{"queries": ["red"] {_FILL}}}')).status_code == 200

    ask(scenario)
    CHILD.close()
