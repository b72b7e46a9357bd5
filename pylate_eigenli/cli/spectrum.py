"""``eigenli spectrum``: the spectra of documents, and a recommended k and preset."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from .indexing import SourceName, model_or_error
from .options import AnyModel, FieldNames, Json, drawable, fields_of
from .terminal import echo, echo_lines

_DECADES, _ROWS_PER_DECADE, _WIDEST = 4, 2, 64  # of the chart

if TYPE_CHECKING:
    from ..corpus.passages import Cut
    from ..corpus.sources import Source
    from ..spectral.analysis import Analysis


def spectrum(
    source: SourceName,
    model: AnyModel = None,
    sample: Annotated[int, typer.Option(min=1, help="Number of documents to sample.")] = 500,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the spectra to this file, .png or .svg.", show_default=False),
    ] = None,
    field: FieldNames = None,
    as_json: Json = False,
) -> None:
    """Compute the spectra of documents and recommend a k and a preset."""
    from ..corpus.passages import Cutter
    from ..corpus.sources import open_source
    from ..models.text_encoder import TextEncoder
    from ..spectral.analysis import analyze

    drawn = None if plot is None else drawable(plot)
    opened = open_source(source, fields_of(field))
    encoder = TextEncoder(model or model_or_error())
    texts = _sample(opened, Cutter(encoder.tokenizer, encoder.document_length), sample)
    found = analyze(encoder.encode_documents(texts), sample=sample)
    if as_json:
        typer.echo(json.dumps(_values(found)))
    else:
        _show(found)
        if drawn is None:
            plain = Console().options.ascii_only
            echo_lines(chart(found.spectra.mean(0).tolist(), found.k, ascii_only=plain))
    for line in opened.unreadable:
        echo(f"skipped: {line}", err=True)
    if drawn is not None:
        found.plot(drawn)
        echo(f"plot: {drawn}", err=True)


def _sample(source: Source, cut: Cut, n: int) -> list[str]:
    """Return the texts of at most n random documents."""
    from ..spectral.sampling import sample_items

    texts = (document.whole for part in source.parts(cut) for document in part.documents)
    if drawn := sample_items(texts, n, seed=0):
        return drawn
    raise ValueError("the source has no documents")


def _values(found: Analysis) -> dict[str, Any]:
    scalars = ("documents", "dim", "tokens_per_document", "effective_rank", "anisotropy")
    return {
        **{name: getattr(found, name) for name in (*scalars, "energy", "shorter")},
        "spectrum": found.spectra.mean(0).tolist(),
        "recommended": {"k": found.k, "preset": found.preset, "reason": found.reason},
    }


def _show(found: Analysis) -> None:
    console = Console()
    console.print(
        f"{found.documents:,} documents of {found.tokens_per_document:.0f} tokens on average, "
        f"d = {found.dim}\n"
        f"effective rank {found.effective_rank:.1f}, mean cosine of two tokens "
        f"{found.anisotropy:.2f}"
    )
    table = Table("k", "energy held", "documents with fewer tokens")
    for k, share in found.energy.items():
        table.add_row(str(k), f"{share:.1%}", f"{found.shorter[k]:.1%}")
    console.print(table)
    console.print(f"Recommended: k = {found.k}, preset = {found.preset}: {found.reason}.")


def chart(spectrum: Sequence[float], k: int, *, ascii_only: bool = False) -> str:
    """Return a spectrum as bars on a logarithmic scale, with the k below them.

    Examples
    --------
    >>> print(chart([0.9, 0.09, 0.009, 0.001], k=2))
    share of the energy, by direction
         1 |▇
           |█
       0.1 |█▇
           |██
      0.01 |██▇
           |███
     0.001 |████
           |████
            1  4
             ^ k = 2
    """
    at = sorted({round(i * (len(spectrum) - 1) / (_WIDEST - 1)) for i in range(_WIDEST)})
    # In eighths of a row, which is as fine as characters are.
    levels = [
        8 * _ROWS_PER_DECADE * (_DECADES + math.log10(max(spectrum[i], 10.0**-_DECADES)))
        for i in at
    ]
    blocks = "    #####" if ascii_only else " ▁▂▃▄▅▆▇█"
    lines = ["share of the energy, by direction"]
    for row in reversed(range(_DECADES * _ROWS_PER_DECADE)):
        decade, within = divmod(row + 1, _ROWS_PER_DECADE)
        label = "" if within else f"{10.0 ** (decade - _DECADES):g}"
        bars = "".join(blocks[min(max(round(level - 8 * row), 0), 8)] for level in levels)
        lines.append(f"{label:>6} |{bars}".rstrip())
    column = sum(direction < k for direction in at)
    lines.append(f"        1{str(len(spectrum)).rjust(len(at) - 1)}")
    lines.append(f"        {'^'.rjust(column)} k = {k}")
    return "\n".join(lines)
