"""``eigenli convert``: an index of other precision, backend or preset, made of one that exists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .options import (
    Backend,
    Directions,
    Dtype,
    IndexPath,
    Json,
    KeepTokens,
    Override,
    Preset,
    Trust,
    Uri,
    counted,
    existing,
    kind_settings,
)
from .terminal import echo_report


def convert(
    index: IndexPath,
    target: Annotated[
        Path,
        typer.Argument(metavar="NEW", help="Folder of the new index.", show_default=False),
    ],
    directions: Directions = None,
    preset: Preset = None,
    dtype: Dtype = None,
    backend: Backend = None,
    uri: Uri = None,
    keep_tokens: KeepTokens = None,
    options: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help='Options of the backend, such as {"index_type": "HNSW"}.'
        ),
    ] = None,
    override: Override = False,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Make another index of INDEX, without a model: other precision, backend or preset.

    Options that are left out stay as they are. INDEX does not change, and texts and model go along.
    Another preset or number of directions needs an index made with --keep-tokens. After an
    interrupted upload to a database, the same command goes on.
    """
    from ..corpus.page_index import open_corpus

    settings = kind_settings(backend, keep_tokens, uri)
    settings |= {"k": directions, "preset": preset, "dtype": dtype}
    settings["backend_options"] = None if options is None else json.loads(options)
    with (
        open_corpus(existing(index), trust_index=trust) as source,
        source.convert(target, override=override, show_progress=not as_json, **settings) as made,
    ):
        report = {"documents": len(made), "index": str(target)}
        line = f"{counted(len(made))}; search with the index in {target}."
        echo_report(report, line, as_json=as_json)
