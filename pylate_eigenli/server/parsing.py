"""Bodies of requests, parsed in a thread: meanwhile the event loop answers others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

# One at a time: while it is parsed, a body takes up to twenty times its size.
_thread = ThreadPoolExecutor(1, "parsing")


class ParsedRoute(APIRoute):
    """A route whose body becomes a model in a thread, before FastAPI asks for its JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        model: Any = self.body_field.field_info.annotation

        class Parsed(Request):
            async def json(self) -> Any:
                body, loop = await self.body(), asyncio.get_running_loop()
                return await loop.run_in_executor(_thread, _parsed, model, body)

        async def handle_parsed(request: Request) -> Response:
            return await handle(Parsed(request.scope, request.receive))

        return handle_parsed


def _parsed(model: type[BaseModel], body: bytes) -> BaseModel:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        # Without the input, which may be huge.
        (first, *_) = error.errors(include_url=False, include_input=False)
        raise HTTPException(422, described({**first, "loc": ("body", *first["loc"])})) from None


def described(error: Any) -> str:
    """Return what is wrong with a body in one line, from an error of pydantic."""
    if error["type"] == "json_invalid":
        return f"the body is not JSON: {error['ctx']['error']}"
    return f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"
