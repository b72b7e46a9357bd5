"""What is refused before a body is read, and how much of all bodies is held."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from pylate_eigenli.server.gate import Gate

TOKEN = "open sesame"


async def _app(scope: Any, receive: Any, send: Any) -> None:
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await PlainTextResponse("in")(scope, receive, send)


def gate(token: str | None = None, hosts: tuple[str, ...] = ("*",), max_bytes: int = 100) -> Gate:
    return Gate(_app, token=token, allowed_hosts=hosts, max_bytes=max_bytes)


def ask(app: Gate, receive: Any = None, path: str = "/search", **headers: str) -> int:
    """Return the status of the answer; without ``receive`` there is no body."""
    status = []

    async def nothing() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        if "status" in message:
            status.append(message["status"])

    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": path, "root_path": "", "headers": pairs}
    asyncio.run(app(scope, receive or nothing, send))
    return status[0]


async def unread() -> dict[str, Any]:
    raise AssertionError("the body was read")


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", "Basic open sesame", TOKEN])
def test_without_the_token_no_byte_of_a_body_is_read(given: str) -> None:
    assert ask(gate(TOKEN), unread, authorization=given) == 401


def test_with_the_token_a_request_comes_in() -> None:
    assert ask(gate(TOKEN), authorization=f"bearer {TOKEN}") == 200
    assert ask(gate(TOKEN), path="/health") == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("[::1]:8000", 200),
        ("[::1]", 200),
        ("127.0.0.2:8000", 400),
        ("evil.example", 400),
        ("evil.example:8000", 400),
        ("localhost.evil.example", 400),
        ("localhost:evil", 400),
        ("[::1].evil.example", 400),
        ("", 400),
    ],
)
def test_only_the_names_of_the_server_are_answered(host: str, status: int) -> None:
    assert ask(gate(hosts=("localhost", "::1")), host=host) == status


def test_all_bodies_together_are_bounded() -> None:
    app = gate(max_bytes=100)

    async def crowd(size: int) -> list[int]:
        """Return the statuses of as many clients that stop before the end of their bodies."""
        statuses: list[int] = []
        release = asyncio.Event()

        async def one() -> None:
            parts = [{"body": b"x" * 90, "more_body": True}, {"body": b"", "more_body": False}]

            async def receive() -> dict[str, Any]:
                if len(parts) == 1:
                    await release.wait()
                return parts.pop(0)

            async def send(message: dict[str, Any]) -> None:
                if "status" in message:
                    statuses.append(message["status"])

            scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
            try:
                await app(scope, receive, send)
            except HTTPException as error:  # the application turns it into an answer
                statuses.append(error.status_code)

        clients = [asyncio.create_task(one()) for _ in range(size)]
        await asyncio.sleep(0.1)
        release.set()
        await asyncio.gather(*clients)
        return statuses

    assert asyncio.run(crowd(5)) == [429, 200, 200, 200, 200]
    assert asyncio.run(crowd(4)) == [200] * 4  # when the others are gone, there is room again
