"""``eigenli export``: the vectors of an index as a file, for other search engines."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .errors import Debug, one_line_errors
from .options import IndexPath, Json, Trust, existing
from .terminal import echo


class Number(str, Enum):
    """How numbers can be written to a file."""

    float32 = "float32"
    float16 = "float16"
    int8 = "int8"


def export(
    index: IndexPath,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="The file to write, .npy or .parquet.", show_default=False
        ),
    ],
    dtype: Annotated[Number, typer.Option(help="Type of the numbers.")] = Number.float32,
    trust: Trust = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the vectors of an index to a file, for another search engine.

    `eigenli convert` moves an index to a vector database.
    """
    with one_line_errors(debug):
        from ..indexes.export import export as export_file
        from ..indexes.open_index import open_index

        with open_index(existing(index), trust_index=trust) as opened:
            export_file(opened, file, dtype=dtype.value, show_progress=not as_json)
            report = {"documents": len(opened), "file": str(file)}
            echo(json.dumps(report) if as_json else f"The vectors are in {file}.")
