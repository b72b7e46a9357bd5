"""``eigenli spectrum``: the spectra of documents, and a recommended k and preset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from .errors import Debug, one_line_errors
from .indexing import SourceName, model_or_error
from .options import Json, Model
from .terminal import echo

if TYPE_CHECKING:
    from ..corpus.passages import Cut
    from ..corpus.sources import Source
    from ..spectral.analysis import Analysis


def spectrum(
    source: SourceName,
    model: Model = None,
    sample: Annotated[int, typer.Option(min=1, help="Number of documents to sample.")] = 500,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the spectra to this file, .png or .svg.", show_default=False),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compute the spectra of documents and recommend a k and a preset."""
    with one_line_errors(debug):
        from ..corpus.passages import Cutter
        from ..corpus.sources import open_source
        from ..models.text_encoder import TextEncoder
        from ..spectral.analysis import analyze

        opened = open_source(source)
        encoder = TextEncoder(model or model_or_error())
        texts = _sample(opened, Cutter(encoder.tokenizer, encoder.document_length), sample)
        found = analyze(encoder.encode_documents(texts), sample=sample)
        if as_json:
            typer.echo(json.dumps(_values(found)))
        else:
            _show(found)
        for line in opened.unreadable:
            echo(f"skipped: {line}", err=True)
        # Last, so that the results are printed even if matplotlib is missing.
        if plot is not None:
            found.plot(plot)


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
