"""``eigenli export``: the vectors of an index as a file, or moved to a vector database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .errors import Debug, one_line_errors

if TYPE_CHECKING:
    from ..index import EigenLIIndex
    from ..sv_index import EigenLISVIndex


def export(
    index: Annotated[Path, typer.Argument(help="The folder of an index.")],
    to: Annotated[
        Literal["milvus", "qdrant", "parquet", "npy"], typer.Option(help="Where to export to.")
    ],
    uri: Annotated[
        str | None,
        typer.Option(
            help="The file to write, or the address of the server: https://host:port, or a path "
            "for an embedded database. Credentials are read from MILVUS_TOKEN or QDRANT_API_KEY."
        ),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float16", "int8"], typer.Option(help="Type of the numbers in a file.")
    ] = "float32",
    store: Annotated[
        str | None,
        typer.Option(help="Refuse a file of vectors too long for this engine, say pgvector."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the index that searches the server.  [default: INDEX-SERVER]"),
    ] = None,
    options: Annotated[
        str | None,
        typer.Option(metavar="JSON", help='Options of the server, as {"index_type": "HNSW"}.'),
    ] = None,
    only_missing: Annotated[
        bool, typer.Option("--only-missing", help="Send only what the server does not hold yet.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Export an index without encoding anything again, to a file or to a vector database."""
    with one_line_errors(debug):
        if to in ("parquet", "npy"):
            if uri is None:
                raise ValueError(f"--to {to} needs --uri, the file to write")
            from ..export import export as export_file

            export_file(_open(index), uri, format=to, dtype=dtype, store=store)  # type: ignore[arg-type]
            typer.echo(f"The vectors are in {uri}.")
            return
        from ..transfer import move

        target = out or index.with_name(f"{index.name}-{to}")
        moved = move(
            _open(index),
            to,
            uri=uri,
            backend_options=None if options is None else json.loads(options),
            index_folder=str(target.parent),
            index_name=target.name,
            only_missing=only_missing,
        )
        with moved:
            typer.echo(f"{len(moved):,} documents; search them with the index in {target}.")


def _open(path: Path) -> EigenLIIndex | EigenLISVIndex:
    """Return the index in a folder, of whichever kind it is."""
    from ..index import EigenLIIndex
    from ..storage.manifest import FILE_NAME, Manifest
    from ..sv_index import EigenLISVIndex

    if not (path / FILE_NAME).is_file():
        raise FileNotFoundError(f"there is no index in {path}")
    kind = Manifest.read(path).meta.get("kind")
    index = EigenLISVIndex if kind == EigenLISVIndex.kind else EigenLIIndex
    return index(str(path.parent), path.name)
