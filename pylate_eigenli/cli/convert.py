"""``eigenli convert``: an index of other precision, backend or preset, made of one that exists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    Backend,
    BackendOptions,
    Dtype,
    IndexPath,
    Json,
    KeepTokens,
    KeptDirections,
    Override,
    Preset,
    Trust,
    Uri,
    counted,
    existing,
    kind_settings,
)
from .terminal import echo_report, has_bars


def convert(
    index: IndexPath,
    target: Annotated[
        Path,
        typer.Argument(metavar="NEW", help="Folder of the new index.", show_default=False),
    ],
    directions: KeptDirections = None,
    preset: Preset = None,
    dtype: Dtype = None,
    backend: Backend = None,
    uri: Uri = None,
    keep_tokens: KeepTokens = None,
    backend_options: BackendOptions = None,
    override: Override = False,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Make another index of INDEX without encoding again: other precision, backend or preset.

    What you leave out stays as in INDEX, which does not change; texts and model go along. Another
    preset or number of directions needs an INDEX made with --keep-tokens. After an interrupted upload
    to a database, the same command goes on.
    """
    from ..corpus.page_index import open_corpus

    settings = kind_settings(backend, keep_tokens, uri, backend_options)
    settings |= {"k": directions, "preset": preset, "dtype": dtype}
    with (
        open_corpus(existing(index), trust_index=trust) as source,
        source.convert(
            target, override=override, show_progress=has_bars(as_json), **settings
        ) as made,
    ):
        report = {"documents": len(made), "index": str(target)}
        line = f"{target} holds {counted(len(made), *made.passages)}."
        echo_report(report, line, as_json=as_json)
