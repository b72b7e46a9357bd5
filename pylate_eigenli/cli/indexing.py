"""``eigenli index`` and ``eigenli add``: documents from a source to an index, batch by batch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import (
    Backend,
    BackendOptions,
    Directions,
    Dtype,
    FieldNames,
    IndexPath,
    Json,
    KeepTokens,
    Model,
    ModelOfNew,
    Override,
    Preset,
    Trust,
    Uri,
    counted,
    existing,
    fields_of,
    kind_settings,
)
from .pages import update_pages
from .progress import Bars, progress_bars
from .terminal import echo, echo_report

if TYPE_CHECKING:
    from ..corpus.sources import Source
    from ..corpus.text_index import TextIndex

SourceName = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A file or a folder of files: texts (.txt, .md, .html, .pdf, .docx) or records "
        "(.jsonl, .csv, .tsv), packed (.gz) or not; or - for JSON lines from stdin.",
        show_default=False,
    ),
]
BatchSize = Annotated[
    int, typer.Option(min=1, help="Documents per commit; an interruption loses at most one commit.")
]


def index(
    index: IndexPath,
    source: SourceName,
    model: ModelOfNew = None,
    directions: Directions = None,
    preset: Preset = None,
    dtype: Dtype = None,
    backend: Backend = None,
    uri: Uri = None,
    backend_options: BackendOptions = None,
    keep_tokens: KeepTokens = None,
    override: Override = False,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Remove all documents that the folder SOURCE does not have."),
    ] = False,
    field: FieldNames = None,
    batch_size: BatchSize = 128,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Index files; run it again for what is new or has changed, or after an interruption.

    A file is known by its path within SOURCE: index two folders with equal file names separately.
    """
    with progress_bars() as bars:
        from ..corpus.sources import open_source
        from ..corpus.text_index import TextIndex

        opened = open_source(source, fields_of(field))
        if prune and opened.files is None:
            raise ValueError(f"--prune needs a folder of files, which {source} is not")
        settings = kind_settings(backend, keep_tokens, uri, backend_options)
        settings |= {"k": directions, "preset": preset, "dtype": dtype}
        if model is None and (override or _is_empty(index, trust)):
            with bars.task("Preparing the default model", logged=True):
                model = model_or_error()
        texts = TextIndex(index, model=model, override=override, trust_index=trust, **settings)
        _fill(texts, opened, batch_size, bars, prune=prune, as_json=as_json)


def add(
    index: IndexPath,
    source: SourceName,
    model: Model = None,
    field: FieldNames = None,
    batch_size: BatchSize = 128,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Add documents or pages to an index. Those that it already holds are replaced."""
    with progress_bars() as bars:
        from ..corpus.page_index import PageIndex, open_corpus

        corpus = open_corpus(existing(index), model, trust_index=trust)
        if isinstance(corpus, PageIndex):
            from ..corpus.pages import PageReader

            with corpus:
                update_pages(corpus, PageReader(source), bars, replace=True, as_json=as_json)
            return
        from ..corpus.sources import open_source

        _fill(
            corpus,
            open_source(source, fields_of(field)),
            batch_size,
            bars,
            replace=True,
            as_json=as_json,
        )


def _is_empty(index: Path, trust: bool) -> bool:
    """Return whether there is no index yet, so that any model can be chosen."""
    from ..corpus.page_index import open_corpus
    from ..storage.manifest import holds_index

    if not holds_index(index):
        return True
    with open_corpus(index, trust_index=trust) as made:
        return made.model is None and not len(made)


def model_or_error() -> str:
    """Return the default model; an error names the option that replaces it."""
    from ..models.default import default_model

    try:
        return default_model()
    except ImportError as error:
        raise ImportError(f"name a model with --model; {error}") from error


def _fill(
    texts: TextIndex,
    source: Source,
    batch_size: int,
    bars: Bars,
    *,
    as_json: bool,
    replace: bool = False,
    prune: bool = False,
) -> None:
    from ..corpus.updating import update

    begin = time.perf_counter()
    with texts:
        encoder = texts.encoder
        with bars.task("Loading the model", logged=True):
            encoder.load()
        try:
            with bars.task("Indexing", source.total) as progress:
                done = update(
                    texts,
                    source.parts(texts.cut),
                    commit_size=batch_size,
                    replace=replace,
                    prune=source.files if prune else None,
                    progress=progress,
                )
        except KeyboardInterrupt:
            held = counted(len(texts), *texts.passages)
            echo(f"interrupted: {texts.path} holds {held}; the same command goes on", err=True)
            raise typer.Exit(130) from None
        if texts.index.is_overriding:
            raise ValueError("there are no documents in the source; the index is left as it was")
        documents, (passages, files) = len(texts), texts.passages
        chosen = texts.index.calibration
    bars.close()
    for line in source.unreadable:
        echo(f"skipped: {line}", err=True)
    if not done.is_pruned:
        echo("nothing was removed but passages: a file of records could not be read", err=True)
    if chosen is not None and chosen.is_early(documents):
        echo(
            "hint: the first documents were too few to choose settings by; the same command with "
            "--override would choose them by all documents",
            err=True,
        )
    seconds = time.perf_counter() - begin
    report = {
        "index": str(texts.path),
        "added": done.added,
        "added_files": done.files,
        "skipped": done.unchanged,
        "removed": done.removed,
        "unreadable": source.unreadable,
        "documents": documents,
        "passages": passages,
        "files": files,
        "seconds": round(seconds, 3),
    }
    numbers = [
        f"added {counted(done.added, done.added - done.records, done.files)}" if done.added else ""
    ]
    numbers += [f"removed {done.removed:,}" if done.removed else ""]
    numbers += [f"left {done.unchanged:,} unchanged" if done.unchanged else ""]
    changes = ", ".join(filter(None, numbers)) or "nothing to do"
    line = (
        f"{changes[0].upper()}{changes[1:]}, in {seconds:.1f} s. "
        f"{texts.path} holds {counted(documents, passages, files)}."
    )
    echo_report(report, line, as_json=as_json)
