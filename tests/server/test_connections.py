"""Slow clients, many clients, and a process that runs out of files."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from pylate_eigenli.cli.serve import _is_loopback

_SERVER = """
import resource, socket, sys
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from pylate_eigenli.server.connections import run

files, most, patience = int(sys.argv[1]), int(sys.argv[2]) or None, float(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))

async def echo(request):
    return PlainTextResponse(str(len(await request.body())))

async def large(request):
    return Response(bytes(64 << 20))

with socket.create_server(("127.0.0.1", 0)) as listening:
    print(listening.getsockname()[1], flush=True)
    app = Starlette(routes=[Route("/", echo, methods=["GET", "POST"]), Route("/large", large)])
    run(app, listening, patience=patience, max_connections=most)
"""
_REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@contextmanager
def serving(files: int = 256, most: int = 0, patience: float = 20) -> Iterator[tuple[int, list]]:
    """Run a small application; yields its port, and at the end what it has logged."""
    log: list[str] = []
    arguments = [sys.executable, "-c", _SERVER, str(files), str(most), str(patience)]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield int(process.stdout.readline()), log
        finally:
            process.terminate()
            log += process.communicate()[1].splitlines()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def answer(client: socket.socket) -> bytes:
    """Return the first line of the answer to a request."""
    client.sendall(_REQUEST)
    return read(client, b"\r\n\r\n0", b"Content-Length: 0\r\n\r\n").partition(b"\r\n")[0]


def read(client: socket.socket, *ends: bytes) -> bytes:
    """Return what a client receives up to one of these ends, or all of it."""
    received = b""
    while not received.endswith(ends) and (part := client.recv(1000)):
        received += part
    return received


def ask(port: int) -> bytes:
    with connect(port) as client:
        return answer(client)


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "part",
    [
        b"",
        b"GET / HTT",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf",
    ],
)
def test_a_request_that_is_never_finished_is_given_up(part: bytes) -> None:
    with serving(patience=0.5) as (port, _):
        for earlier in (b"", _REQUEST):
            with connect(port) as client:
                if earlier and part:
                    assert answer(client) == b"HTTP/1.1 200 OK"
                begin = time.monotonic()
                client.sendall(part)
                assert is_closed(client)
                assert time.monotonic() - begin < 10


def test_a_body_that_keeps_coming_is_waited_for() -> None:
    with serving(patience=0.5) as (port, _), connect(port) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 160000\r\n\r\n")
        for _ in range(16):
            client.sendall(b"x" * 10_000)
            time.sleep(0.1)
        assert read(client, b"160000").endswith(b"\r\n\r\n160000")


def test_an_answer_that_nobody_reads_is_given_up() -> None:
    with serving(patience=0.5) as (port, _), connect(port) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(3)
        received = 0
        with suppress(ConnectionError):
            while part := client.recv(1 << 20):
                received += len(part)
        assert received < 64 << 20


def test_connections_beyond_the_limit_are_told_so_and_others_go_on() -> None:
    with serving(most=5) as (port, _):
        held = [connect(port) for _ in range(5)]
        assert {answer(client) for client in held} == {b"HTTP/1.1 200 OK"}
        assert ask(port) == b"HTTP/1.1 503 Service Unavailable"
        assert answer(held[0]) == b"HTTP/1.1 200 OK"
        for client in held:
            client.close()
        time.sleep(0.5)
        assert ask(port) == b"HTTP/1.1 200 OK"


def test_a_lack_of_files_is_logged_once_and_passes() -> None:
    # More connections are allowed than files can be open.
    with serving(files=40, most=1000) as (port, log):
        held = [connect(port) for _ in range(120)]
        time.sleep(2.5)  # asyncio tries again every second
        for client in held:
            client.close()
        time.sleep(2.5)
        assert ask(port) == b"HTTP/1.1 200 OK"
    (line,) = log
    assert "Too many open files" in line


def test_by_default_connections_leave_files_for_the_index() -> None:
    with serving(files=256) as (port, log):
        held = [connect(port) for _ in range(300)]
        time.sleep(1)
        answers = {ask(port) for _ in range(3)}
        assert answers == {b"HTTP/1.1 503 Service Unavailable"}
        for client in held:
            client.close()
    assert log == []


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1", True),
        ("127.0.0.2", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.7", False),
    ],
)
def test_every_loopback_address_is_for_this_machine_only(address: str, local: bool) -> None:
    assert _is_loopback(address) == local
