"""``eigenli export``: the vectors of an index, to a file or to a vector database."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .errors import Debug, one_line_errors
from .options import IndexPath, Json, Trust, counted, existing
from .terminal import echo


class Target(str, Enum):
    """What an index can be exported to."""

    milvus = "milvus"
    qdrant = "qdrant"
    parquet = "parquet"
    npy = "npy"


class Number(str, Enum):
    """How numbers can be written to a file."""

    float32 = "float32"
    float16 = "float16"
    int8 = "int8"


def export(
    index: IndexPath,
    to: Annotated[Target, typer.Option(help="Where to export to.")],
    uri: Annotated[
        str | None,
        typer.Option(
            help="The file to write, or the address of the database: https://host:port, or a path "
            "for an embedded database. Credentials are read from MILVUS_TOKEN or QDRANT_API_KEY."
        ),
    ] = None,
    dtype: Annotated[Number, typer.Option(help="Type of the numbers in a file.")] = Number.float32,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the index that searches the database; by default beside INDEX."
        ),
    ] = None,
    options: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help='Options of the database, such as {"index_type": "HNSW"}.'
        ),
    ] = None,
    only_missing: Annotated[
        bool,
        typer.Option(
            "--only-missing", help="Send only documents that the database does not hold yet."
        ),
    ] = False,
    trust: Trust = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Export the vectors of an index to a file or to a vector database."""
    with one_line_errors(debug):
        from ..corpus.page_index import open_corpus
        from ..indexes.open_index import open_index

        if to is Target.parquet or to is Target.npy:
            if uri is None:
                raise ValueError(f"--to {to.value} needs --uri, the file to write")
            from ..indexes.export import export as export_file

            opened = open_index(existing(index), trust_index=trust)
            export_file(
                opened,
                uri,
                format=to.value,
                dtype=dtype.value,
                show_progress=not as_json,
            )
            report = {"documents": len(opened), "file": uri}
            echo(json.dumps(report) if as_json else f"The vectors are in {uri}.")
            return
        from ..indexes.databases.move import move

        target = out or index.with_name(f"{index.name}-{to.value}")
        source = open_corpus(existing(index), trust_index=trust)
        moved = move(
            source.index,
            to.value,
            uri=uri,
            backend_options=None if options is None else json.loads(options),
            index_folder=str(target.parent),
            index_name=target.name,
            only_missing=only_missing,
        )
        with source, moved:
            source.copy_catalogue(target)
            report = {"documents": len(moved), "index": str(target)}
            told = f"{counted(len(moved))}; search with the index in {target}."
            echo(json.dumps(report) if as_json else told)
