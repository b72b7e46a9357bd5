"""``eigenli pages``: search a folder of PDFs and page images by what is on the pages."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .errors import Debug, one_line_errors
from .options import Json

if TYPE_CHECKING:
    from ..corpus.page_index import PageHit

app = typer.Typer(
    help="Search PDFs and page images with a vision model.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Device = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, or auto for several; by default a GPU if there is one."),
]
Dtype = Annotated[str, typer.Option(help="bfloat16, float32, ...; auto is the checkpoint's own.")]
Attention = Annotated[
    str | None, typer.Option("--attention", help="sdpa, flash_attention_2 or eager.")
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run the code that the model brings, if any.")
]


@app.command()
def index(
    folder: Annotated[Path, typer.Argument(help="Folder of PDFs and images, or one file.")],
    model: Annotated[
        str,
        typer.Option(metavar="NAME_OR_PATH", help="ColQwen3, ColPali or another of their kind."),
    ],
    index_folder: Annotated[
        Path | None,
        typer.Option("--index", help="Where to keep the index; by default FOLDER.pages."),
    ] = None,
    k: Annotated[
        int | None, typer.Option("-k", "--k", min=1, help="Directions kept of a page: 32.")
    ] = None,
    dpi: Annotated[float, typer.Option(min=1, help="Resolution to render PDFs in.")] = 144,
    pages: Annotated[
        str | None, typer.Option(help="Only these pages of every document, like 1-3,8,12-.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Pages to embed at a time.")] = 4,
    max_visual_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a page, at most.")
    ] = None,
    dtype: Dtype = "auto",
    device: Device = None,
    attention: Attention = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Index the pages of a folder; run it again to add what is new and go on where it stopped."""
    with one_line_errors(debug):
        from ..corpus.page_index import PageIndex
        from ..corpus.pages import PageReader, parse_page_ranges
        from ..models.vision import VisionColBERT

        wanted = None if pages is None else parse_page_ranges(pages)
        reader = PageReader(folder, dpi=dpi, pages=wanted)
        if not reader.documents:
            raise ValueError(f"there is no PDF or image in {folder}")
        source = folder.resolve()
        index_folder = index_folder or source.with_name(source.name + ".pages")
        page_index = PageIndex(index_folder, k=k)
        encoder = VisionColBERT(
            model,
            dtype=dtype,
            device_map=device,
            attn_implementation=attention,
            max_visual_tokens=max_visual_tokens,
            trust_remote_code=trust_remote_code,
        )
        update = page_index.update(reader, encoder, batch_size)
        if as_json:
            report = {
                "index": str(index_folder),
                "pages": len(page_index),
                **asdict(update),
                "skipped": {skipped.id: skipped.reason for skipped in reader.skipped},
            }
            typer.echo(json.dumps(report))
            return
        typer.echo(
            f"{index_folder}: {len(page_index):,} pages, {update.added:,} of them new; "
            f"{update.removed:,} removed"
        )
        if reader.skipped:
            typer.echo(f"skipped {len(reader.skipped)}:", err=True)
            for skipped in reader.skipped:
                typer.echo(f"  {skipped.id}: {skipped.reason}", err=True)


@app.command()
def search(
    index_folder: Annotated[Path, typer.Argument(metavar="INDEX", help="What pages index made.")],
    question: Annotated[str, typer.Argument(help="What to look for.")],
    top: Annotated[int, typer.Option("-n", "--top", min=1, help="Pages to show.")] = 10,
    thumbnails: Annotated[
        Path | None,
        typer.Option(metavar="OUT.html", help="Write the pages found to a contact sheet."),
    ] = None,
    open_sheet: Annotated[
        bool, typer.Option("--open", help="Show the contact sheet in the browser.")
    ] = False,
    as_json: Json = False,
    dtype: Dtype = "auto",
    device: Device = None,
    attention: Attention = None,
    trust_remote_code: TrustRemoteCode = False,
    debug: Debug = False,
) -> None:
    """Find the pages that answer a question, with the model they were indexed with."""
    with one_line_errors(debug):
        from ..corpus.page_index import PageIndex
        from ..models.vision import VisionColBERT

        page_index = PageIndex(index_folder)
        encoder = VisionColBERT(
            page_index.model_name_or_path,
            dtype=dtype,
            device_map=device,
            attn_implementation=attention,
            trust_remote_code=trust_remote_code,
        )
        hits = page_index.search(encoder, question, k=top)
        if as_json:
            typer.echo(json.dumps([asdict(hit) for hit in hits], indent=2))
        else:
            Console(highlight=False).print(_table(hits))
        if thumbnails is not None or open_sheet:
            _write_sheet(question, hits, page_index.folder, thumbnails, open_sheet)


def _table(hits: list[PageHit]) -> Table:
    table = Table("document")
    for heading in ("page", "score"):
        table.add_column(heading, justify="right")
    for hit in hits:
        # Text, because names may hold brackets that rich would take for markup.
        page = "" if hit.page is None else str(hit.page)
        table.add_row(Text(hit.document, overflow="fold"), page, f"{hit.score:.3f}")
    return table


def _write_sheet(
    question: str, hits: list[PageHit], folder: Path, path: Path | None, show: bool
) -> None:
    import tempfile
    import webbrowser

    from ..corpus.contact_sheet import contact_sheet

    sheet = contact_sheet(question, hits, folder)
    path = path or Path(tempfile.mkdtemp(prefix="eigenli-pages-")) / "pages.html"
    path.write_text(sheet, encoding="utf-8")
    typer.echo(f"contact sheet: {path}", err=True)
    if show:
        webbrowser.open(path.resolve().as_uri())
