"""``eigenli pages``: search a folder of PDFs and page images by what is on the pages."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from .errors import reporting_errors
from .options import Directions, Json, Model, Preset, Top, Trust, counted
from .progress import Bars, progress_bars
from .terminal import echo, text

if TYPE_CHECKING:
    from ..corpus.hits import Hit
    from ..corpus.page_index import PageIndex
    from ..corpus.pages import PageReader

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
    bool,
    typer.Option("--trust-remote-code", help="Run the code that the checkpoint brings, if any."),
]


@app.command()
@reporting_errors
def index(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of PDFs and images, or one file.")
    ],
    model: Annotated[
        str,
        typer.Option(metavar="NAME_OR_PATH", help="A vision model, such as ColQwen3 or ColPali."),
    ],
    index_folder: Annotated[
        Path | None,
        typer.Option("--index", help="Folder of the index; by default FOLDER.pages."),
    ] = None,
    directions: Directions = None,
    preset: Preset = None,
    dpi: Annotated[float, typer.Option(min=1, help="Resolution of rendered PDFs.")] = 144,
    pages: Annotated[
        str | None, typer.Option(help="Only these pages of every document, like 1-3,8,12-.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Pages to encode at a time.")] = 4,
    max_visual_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a page, at most.")
    ] = None,
    dtype: Dtype = "auto",
    device: Device = None,
    attention: Attention = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: Json = False,
) -> None:
    """Index the pages of a folder; run it again to add new and changed files."""
    from ..corpus.page_index import PageIndex
    from ..corpus.pages import PageReader, parse_page_ranges
    from ..models.vision_encoder import VisionEncoder

    wanted = None if pages is None else parse_page_ranges(pages)
    reader = PageReader(folder, dpi=dpi, pages=wanted)
    if not reader.documents:
        raise ValueError(f"there is no PDF or image in {folder}")
    source = folder.resolve()
    encoder = VisionEncoder(
        model,
        batch_size=batch_size,
        dtype=dtype,
        device_map=device,
        attn_implementation=attention,
        max_visual_tokens=max_visual_tokens,
        trust_remote_code=trust_remote_code,
    )
    path = index_folder or source.with_name(source.name + ".pages")
    with (
        progress_bars() as bars,
        PageIndex(path, model=encoder, k=directions, preset=preset) as corpus,
    ):
        update_pages(corpus, reader, bars, batch_size=batch_size, as_json=as_json)


def update_pages(
    corpus: PageIndex,
    reader: PageReader,
    bars: Bars,
    *,
    as_json: bool,
    batch_size: int = 4,
    replace: bool = False,
) -> None:
    """Bring an index of pages up to date with files, and report what was done."""
    # The model is loaded for the first new page, if there is one.
    files = len(reader.documents)
    with bars.task("Indexing", files, logged=True, unit="pages") as progress:
        update = corpus.update(reader, batch_size=batch_size, replace=replace, progress=progress)
    bars.close()
    if as_json:
        report = {
            "index": str(corpus.path),
            "documents": len(corpus),
            "added_files": update.files,
            **asdict(update),
            "files": corpus.passages[1],
            "skipped": reader.skipped,
        }
        typer.echo(json.dumps(report))
        return
    echo(
        f"Added {update.added:,}, removed {update.removed:,}. {corpus.path} holds "
        f"{counted(len(corpus), *corpus.passages, unit='page')}."
    )
    for name, reason in reader.skipped.items():
        echo(f"skipped: {name}: {reason}", err=True)


@app.command()
@reporting_errors
def search(
    index_folder: Annotated[
        Path, typer.Argument(metavar="INDEX", help="Folder of an index of pages.")
    ],
    words: Annotated[
        list[str],
        typer.Argument(metavar="QUESTION", help="What to look for, in one or several words."),
    ],
    top: Top = 10,
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
    model: Model = None,
    trust_remote_code: TrustRemoteCode = False,
    trust: Trust = False,
) -> None:
    """Find the pages that answer a question, and show them on a contact sheet."""
    from ..corpus.page_index import PageIndex
    from ..models.vision_encoder import VisionEncoder

    question = " ".join(words)
    with PageIndex(index_folder, model=model, trust_index=trust) as corpus:
        if corpus.model is None:
            raise FileNotFoundError(f"there is no index of pages in {index_folder}")
        corpus.check_trust(runs_code=trust_remote_code)
    encoder = VisionEncoder(
        corpus.model,
        dtype=dtype,
        device_map=device,
        attn_implementation=attention,
        trust_remote_code=trust_remote_code,
    )
    with PageIndex(index_folder, model=encoder) as corpus:
        (answer,) = corpus.answers([question], top)
        folder = corpus.folder
    if as_json:
        typer.echo(json.dumps([_as_dict(hit) for hit in answer.hits], indent=2))
    else:
        Console(highlight=False).print(_table(answer.hits))
    if thumbnails is not None or open_sheet:
        _write_sheet(question, answer.hits, folder, thumbnails, open_sheet)


def _as_dict(hit: Hit) -> dict[str, Any]:
    return {
        "document": hit.file or hit.id,
        "page": hit.page,
        "score": hit.score,
        "share": hit.share,
    }


def _table(hits: list[Hit]) -> Table:
    table = Table("document")
    for heading in ("page", "explains"):
        table.add_column(heading, justify="right")
    for hit in hits:
        page = "" if hit.page is None else str(hit.page)
        table.add_row(text(hit.file or hit.id, fold=True), page, f"{hit.share:.0%}")
    return table


def _write_sheet(
    question: str, hits: list[Hit], folder: Path, path: Path | None, show: bool
) -> None:
    import tempfile
    import webbrowser

    from ..corpus.contact_sheet import contact_sheet

    sheet = contact_sheet(question, hits, folder)
    path = path or Path(tempfile.mkdtemp(prefix="eigenli-pages-")) / "pages.html"
    path.write_text(sheet, encoding="utf-8")
    echo(f"contact sheet: {path}", err=True)
    if show:
        webbrowser.open(path.resolve().as_uri())
