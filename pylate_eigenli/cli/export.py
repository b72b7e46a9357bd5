"""``eigenli export``: the vectors of an index as a file, for other search engines."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .options import IndexPath, Json, Trust, existing
from .terminal import echo_report, has_bars


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
) -> None:
    """Write the vectors of an index to a file, for another search engine.

    `eigenli convert` moves an index to a vector database.
    """
    from ..indexes.export import export as export_file
    from ..indexes.open_index import open_index

    with open_index(existing(index), trust_index=trust) as opened:
        export_file(opened, file, dtype=dtype.value, show_progress=has_bars(as_json))
        report = {"documents": len(opened), "file": str(file)}
        echo_report(report, f"The vectors are in {file}.", as_json=as_json)
