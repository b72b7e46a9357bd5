"""``eigenli serve``: an index over HTTP, with a page to try it in."""

from __future__ import annotations

import errno
import json
import socket
from ipaddress import ip_address
from typing import Annotated

import typer

from .options import IndexPath, Json, Model, Trust, existing
from .terminal import echo, warn, working

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    index: IndexPath,
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default is for this machine only.")
    ] = _LOOPBACK[0],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any that is free.")
    ] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="EIGENLI_TOKEN",
            help="Bearer token that requests must bring.",
            show_default=False,
        ),
    ] = None,
    max_megabytes: Annotated[int, typer.Option(min=1, help="Size of a request, at most.")] = 32,
    model: Model = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Serve an index over HTTP, with a page to search it in."""
    from ..errors import require

    require("fastapi", "serve", "the server")
    require("uvicorn", "serve", "the server")
    from ..server.app import create_app
    from ..server.connections import run
    from ..server.service import Service

    existing(index)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # First, because loading a model takes long, and a port in use is reported at once.
    with _listening(host, port, family) as listening:
        address, bound_port = listening.getsockname()[:2]
        local = _is_loopback(address)
        service = Service(index, model, trust_index=trust)
        with working("Loading the model"):
            service.warm_up()
        app = create_app(
            service,
            token=token,
            allowed_hosts=(*_LOOPBACK, host, address) if local else ("*",),
            max_body_bytes=max_megabytes << 20,
        )
        shown = f"[{host}]" if family == socket.AF_INET6 else host
        url = f"http://{shown}:{bound_port}"
        if as_json:
            typer.echo(json.dumps({"url": url}))
        else:
            echo(f"Serving {index} at {url}")
            echo(f"API description at {url}/openapi.json; press Ctrl-C to stop.")
        if service.model is None:
            warn(
                f"{index} names no model, so that it can be searched by embeddings only: name "
                "the model that made them with --model"
            )
        if not local and token is None:
            warn("anyone who can reach this address can change the index; set --token")
        run(app, listening)


def _is_loopback(address: str) -> bool:
    """Return whether only this machine can reach an address, in any of its forms."""
    parsed = ip_address(address)
    return (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback


def _listening(host: str, port: int, family: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise OSError(
            f"port {port} of {host} is in use; --port chooses another, --port 0 any that is free"
        ) from error
