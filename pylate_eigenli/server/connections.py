"""The web server itself: uvicorn, with bounds on connections and on the time that they take."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_PATIENCE = 20.0  # seconds
_BYTES_PER_SECOND = 16 << 10  # of a body that takes longer
_MAX_CONNECTIONS = 1000
_ACCEPTED_AT_ONCE = 100
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 10\r\n"
    b"Content-Length: 0\r\n\r\n"
)


def run(
    app: Any,
    listening: socket.socket,
    *,
    patience: float = _PATIENCE,
    max_connections: int | None = None,
) -> None:
    """Serve an application until the process is interrupted.

    Parameters
    ----------
    app
        The ASGI application.
    listening
        A socket that listens.
    patience
        Seconds that a client has to send a request or to read on in an answer. A body may take
        longer if it arrives at 16 KB a second.
    max_connections
        Connections at a time; more are answered 503. By default 1000, or as many as half of the
        files that the process may open.
    """
    most = max_connections or _affordable_connections()
    protocol: Any = partial(_Connection, patience=patience, max_connections=most)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        log_level="error",  # warnings are about single requests, which anybody can send
        backlog=_ACCEPTED_AT_ONCE,  # all of them are accepted before the first is counted
        # Longer than clients keep idle connections; otherwise the server closes one in use.
        timeout_keep_alive=60,
        timeout_graceful_shutdown=30,
    )
    with suppress(KeyboardInterrupt):
        _Server(config).run(sockets=[listening])


class _Server(uvicorn.Server):
    """A server that reports a lack of files once, not for each connection."""

    _reported = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._report)
        await super().startup(sockets)

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _OUT_OF_RESOURCES:
            loop.default_exception_handler(context)
        elif not self._reported:
            self._reported = True
            reason = f"{error.strerror}: new connections have to wait (not reported again)"
            logging.getLogger("uvicorn.error").error(reason)


class _Connection(H11Protocol):
    """A connection that is closed if its client keeps it waiting."""

    def __init__(self, *arguments: Any, patience: float, max_connections: int, **named: Any):
        super().__init__(*arguments, **named)
        self._patience = patience
        self._max_connections = max_connections
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._max_connections:
            transport.write(_BUSY)
            transport.close()
        else:
            self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            self._stop_waiting()
        elif self._timer is None:
            self._wait()
        else:
            self._deadline += len(data) / _BYTES_PER_SECOND

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        """Give the client some time for what it has to do next."""
        self._stop_waiting()
        self._deadline = self.loop.time() + self._patience
        self._timer = self.loop.call_at(self._deadline, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if self._deadline > self.loop.time():  # the client has sent something since
            self._timer = self.loop.call_at(self._deadline, self._give_up)
        else:
            self._timer = None
            self.transport.abort()


def _affordable_connections() -> int:
    """Return how many connections leave half of the files that may be open to the index."""
    if sys.platform == "win32":
        return _MAX_CONNECTIONS
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return max(min(_MAX_CONNECTIONS, files // 2 - _ACCEPTED_AT_ONCE), files // 4)
