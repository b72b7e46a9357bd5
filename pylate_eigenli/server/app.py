"""The application: routes, errors, authorisation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPBearer
from starlette.convertors import PathConvertor, register_url_convertor

from .. import __version__
from ..errors import IndexLockedError, UnknownDocumentError
from .batching import Batcher, OverloadedError
from .bodies import described
from .gate import Gate
from .page import page
from .parsing import ParsedRoute
from .schemas import (
    MAX_QUERIES,
    AddRequest,
    ChangeResponse,
    DocumentOut,
    Health,
    Info,
    Problem,
    RemoveRequest,
    SearchAddress,
    SearchRequest,
    SearchResponse,
    SpectrumRequest,
    SpectrumResponse,
)
from .service import Service

MAX_BODY_BYTES = 32 << 20
_WAITING = 16  # of changes and of spectra, which take longer than searches

# For the description only: the gate has checked the token before the body was read.
_bearer = Depends(HTTPBearer(auto_error=False))

_STATUS: dict[type[Exception], int] = {
    ValueError: 400,
    TypeError: 400,
    UnknownDocumentError: 404,
    IndexLockedError: 409,
    OverloadedError: 429,
}
_MEANINGS = {
    400: "The request does not fit the index.",
    401: "A bearer token is needed.",
    404: "A document is unknown; nothing was changed.",
    409: "Another process is changing the index; try again.",
    413: "The body is too large.",
    422: "The request is not of the form described here.",
    429: "Too many requests are waiting.",
}


class _Id(PathConvertor):
    """The id of a document in a path. Starlette's own convertors take no ends of lines."""

    regex = r"[\s\S]*"


register_url_convertor("id", _Id())


def create_app(
    service: Service,
    *,
    token: str | None = None,
    allowed_hosts: Sequence[str] = ("*",),
    max_body_bytes: int = MAX_BODY_BYTES,
) -> FastAPI:
    """Make the application for an index.

    Parameters
    ----------
    service
        The index; closed when the application shuts down.
    token
        Bearer token that every request needs, except for the page and ``/health``; by default none.
        It must be printable ASCII, because headers carry nothing else.
    allowed_hosts
        Host names that requests may address. Name them for a server on this machine only;
        otherwise a web page could reach the server under a host name of its own.
    max_body_bytes
        Largest body of a request.

    Examples
    --------
    >>> import tempfile
    >>> from pylate_eigenli.server.service import Service
    >>> app = create_app(Service(tempfile.mkdtemp()), token="open sesame")
    >>> sorted(app.openapi()["paths"])
    ['/documents', '/documents/{id}', '/health', '/info', '/search', '/spectrum']
    """
    if token is not None and not _is_token(token):
        raise ValueError("the token must consist of printable ASCII characters, at least one")
    searching, changing = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    looking = ThreadPoolExecutor(1)

    def found(requests: Sequence[SearchRequest]) -> list[bytes]:
        return [answer.model_dump_json().encode() for answer in service.search(requests)]

    search_batched = Batcher(
        found, searching, max_batch=MAX_QUERIES, size=lambda request: len(request.all_queries)
    )
    change: Batcher[Callable[[], ChangeResponse], ChangeResponse] = Batcher(
        lambda changes: [make() for make in changes], changing, max_batch=1, max_waiting=_WAITING
    )
    look: Batcher[SpectrumRequest, SpectrumResponse] = Batcher(
        lambda requests: [service.spectra(request.ids) for request in requests],
        looking,
        max_batch=1,
        max_waiting=_WAITING,
    )
    html = page()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        # Wait for running changes: a commit is never interrupted.
        for executor in (changing, searching, looking):
            executor.shutdown(wait=True)
        service.close()

    app = FastAPI(
        title="EigenLI",
        version=__version__,
        description="Late-interaction search with one small subspace, or one vector, per document.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.router.route_class = ParsedRoute
    app.add_middleware(Gate, token=token, allowed_hosts=allowed_hosts, max_bytes=max_body_bytes)
    _report_errors(app)
    guarded: Any = {
        "dependencies": [] if token is None else [_bearer],
        "responses": {
            status: {"model": Problem, "description": meaning}
            for status, meaning in _MEANINGS.items()
            if token is not None or status != 401
        },
    }
    with_body: Any = {**guarded, "dependencies": [*guarded["dependencies"], Depends(_sent_as_json)]}

    @app.get("/", include_in_schema=False)
    async def root() -> HTMLResponse:
        return html

    @app.get("/health")
    async def health() -> Health:
        """Check that the server is up."""
        return Health()

    @app.get("/info", **guarded)
    async def info() -> Info:
        """Return what the index holds and how it was made."""
        return await asyncio.get_running_loop().run_in_executor(searching, service.info)

    @app.get("/search", response_model=SearchResponse, **guarded)
    async def search_text(asked: Annotated[SearchAddress, Query()]) -> Response:
        """Find the best documents for one text."""
        return Response(await search_batched(asked.request), media_type="application/json")

    @app.post("/search", response_model=SearchResponse, **with_body)
    async def search(request: SearchRequest) -> Response:
        """Find the best documents for texts or for token embeddings."""
        return Response(await search_batched(request), media_type="application/json")

    @app.post("/spectrum", **with_body)
    async def spectrum(request: SpectrumRequest) -> SpectrumResponse:
        """Return the spectra of those documents whose tokens are kept or can be encoded again."""
        return await look(request)

    @app.get("/documents/{id:id}", **guarded)
    async def document(
        id: Annotated[str, Path(min_length=1, max_length=1000, description="The id, as a URL.")],
    ) -> DocumentOut:
        """Return the whole text of a document, with its title and metadata."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(searching, service.document, id)

    @app.post("/documents", **with_body)
    async def add(request: AddRequest) -> ChangeResponse:
        """Add documents, in place of those with the same ids, all or none."""
        return await change(partial(service.add, request.documents))

    @app.delete("/documents", **with_body)
    async def remove(request: RemoveRequest) -> ChangeResponse:
        """Remove documents, all or none; the name of a file stands for its passages or pages."""
        return await change(partial(service.remove, request.ids))

    return app


def _sent_as_json(request: Request) -> None:
    """Refuse a body whose content type is not JSON.

    Any web page may send such a body to a server on this machine, and some versions of FastAPI
    would read it as JSON.
    """
    kind = request.headers.get("content-type", "").partition(";")[0]
    if kind.strip().lower() != "application/json":
        raise HTTPException(422, "send JSON with Content-Type: application/json")


def _is_token(token: str) -> bool:
    # Headers lose surrounding spaces, and have no fixed encoding for other characters.
    return token.isascii() and token.isprintable() and bool(token) and token == token.strip()


def _report_errors(app: FastAPI) -> None:
    """Answer errors with one line that names the cause."""

    async def problem(_: Request, error: Exception) -> JSONResponse:
        status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return JSONResponse({"detail": lines[0]}, status)

    async def invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return JSONResponse({"detail": described(error.errors()[0])}, 422)

    for kind in _STATUS:
        app.add_exception_handler(kind, problem)
    app.add_exception_handler(RequestValidationError, invalid)
