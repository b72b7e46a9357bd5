"""What a request must bring before its body is read: a host name, a token, and few bytes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATHS = ("/", "/health", "/openapi.json")
"""Paths that need no token."""
_BODIES_HELD = 4


class Gate:
    """Middleware that answers 400, 401, 413 or 429 to requests that may not come in.

    Parameters
    ----------
    app
        The application.
    token
        Bearer token that all paths but :data:`OPEN_PATHS` need; None for none.
    allowed_hosts
        Host names that requests may address; ``"*"`` for any.
    max_bytes
        Largest body, announced or not. All bodies at a time may take four times as much.

    Examples
    --------
    >>> from starlette.applications import Starlette
    >>> app = Starlette()
    >>> app.add_middleware(Gate, token=None, allowed_hosts=["localhost"], max_bytes=1 << 20)
    """

    def __init__(
        self, app: ASGIApp, *, token: str | None, allowed_hosts: Sequence[str], max_bytes: int
    ) -> None:
        self._app = app
        self._token = token
        self._hosts = {host.lower() for host in allowed_hosts}
        self._max_bytes = max_bytes
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refusal(_path(scope), dict(scope["headers"]))
        if refused is not None:
            status, reason = refused
            headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
            await JSONResponse({"detail": reason}, status, headers)(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            size = len(message.get("body", b""))
            received += size
            self._held += size
            if received > self._max_bytes:
                raise HTTPException(413, self._too_large)
            if self._held > _BODIES_HELD * self._max_bytes:
                raise HTTPException(429, "too many large requests are waiting; try again later")
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            self._held -= received

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """Return status and reason if the headers suffice to refuse a request."""
        host = _without_port(headers.get(b"host", b"").decode("latin-1"))
        if "*" not in self._hosts and host not in self._hosts:
            return 400, "the server does not go by the host name of the request"
        if self._token is not None and path not in OPEN_PATHS:
            kind, _, given = headers.get(b"authorization", b"").partition(b" ")
            # Constant time: an attacker cannot guess the token letter by letter.
            same = secrets.compare_digest(given.strip(), self._token.encode())
            if kind.lower() != b"bearer" or not same:
                return 401, "a valid token is needed"
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._max_bytes:
            return 413, self._too_large
        return None

    @property
    def _too_large(self) -> str:
        return f"the body is larger than the {self._max_bytes:,} bytes allowed"


def _path(scope: Scope) -> str:
    """Return the path of a request within the application."""
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


def _without_port(host: str) -> str:
    """Return the name or address in a Host header, an IPv6 address without its brackets."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).strip("[]").lower()
