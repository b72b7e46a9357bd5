"""A limit on the size of requests, checked before they are parsed."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Middleware that answers 413 to bodies of more than ``max_bytes``, announced or not.

    Examples
    --------
    >>> from starlette.applications import Starlette
    >>> app = Starlette()
    >>> app.add_middleware(BodyLimit, max_bytes=1 << 20)
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        reason = f"the body is larger than the {self._max_bytes:,} bytes allowed"
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._max_bytes:
            await JSONResponse({"detail": reason}, 413)(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise HTTPException(413, reason)
            return message

        await self._app(scope, counted, send)
