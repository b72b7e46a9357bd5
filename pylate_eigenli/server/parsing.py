"""Routes that parse large bodies in a child process: meanwhile the event loop answers others.

A thread would not do, because a parser holds Python's lock until the end. A body of 30 MB can take
ten seconds and gigabytes to be refused. The child has limits of both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

from ..corpus.sandbox import Sandbox, SandboxError
from .bodies import parse, unpacked

SMALL = 128 << 10
"""Bytes of a body that is parsed at once, which takes milliseconds."""
CHILD = Sandbox(parse.__module__, seconds=10)
_waiting = ThreadPoolExecutor(1, "parsing")  # for the child, which parses one body at a time


class ParsedRoute(APIRoute):
    """A route whose body becomes a model before FastAPI asks for its JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        model = getattr(self.body_field.field_info.annotation, "__name__", "")

        class Parsed(Request):
            async def json(self) -> Any:
                return await _parsed(model, await self.body())

        async def handle_parsed(request: Request) -> Response:
            return await handle(Parsed(request.scope, request.receive))

        return handle_parsed


async def _parsed(model: str, body: bytes) -> Any:
    try:
        if len(body) <= SMALL:
            return parse(model, body)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_waiting, _parsed_by_child, model, body)
    except SandboxError as error:
        raise HTTPException(413, f"the body cannot be parsed: {error}") from None
    except ValueError as error:
        raise HTTPException(422, str(error)) from None


def _parsed_by_child(model: str, body: bytes) -> Any:
    return unpacked(*CHILD.call("parse", body, model=model))
