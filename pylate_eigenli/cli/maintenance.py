"""``eigenli info``, ``remove``, ``verify`` and ``compact``: maintenance of an index; ``warmup``."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from .options import IndexPath, Json, Trust, counted, existing
from .terminal import echo, echo_report, text, working

if TYPE_CHECKING:
    from ..corpus.corpus_index import CorpusIndex
    from ..storage import DocumentId


def info(index: IndexPath, trust: Trust = False, as_json: Json = False) -> None:
    """Show what an index holds and how it was made."""
    about = _facts(existing(index))
    if about is None:
        from ..corpus.page_index import open_corpus

        with open_corpus(index, trust_index=trust) as corpus:
            about = corpus.about()
    if as_json:
        typer.echo(json.dumps(about))
        return
    table = Table(show_header=False, box=None)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in about.items():
        if value is not None:
            table.add_row(text(name.replace("_", " "), "bold"), text(_shown(value)))
    Console(highlight=False).print(table)


def _shown(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("agreements"), dict):  # the calibration
        agreed = ", ".join(f"{key} {share}" for key, share in value["agreements"].items())
        why = f"the shares of MaxSim's best documents found: {agreed}"
        reason = why if agreed else "the first documents were too few to tell"
        return f"{value.get('chosen')} ({reason})"
    if isinstance(value, dict):
        return ", ".join(f"{key}={setting}" for key, setting in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)


def _facts(path: Path) -> dict[str, Any] | None:
    """Return what the files of an index say; None if it has to be opened to know.

    Opening an index imports torch, which takes seconds.
    """
    from ..corpus.catalogue import Catalogue, holding, newest_rows
    from ..indexes.facts import are_complete, facts
    from ..storage import Store

    catalogue = Catalogue(path)
    with closing(Store(path)) as store:
        state = store.snapshot
        if catalogue.file.is_set_aside or not are_complete(state):
            return None
        about = catalogue.about
        passages, files = catalogue.count_passages(newest_rows(path, state))
        pages = {"folder": about["folder"]} if "folder" in about else {}
        return {
            "path": str(path),
            "holds": holding(about),
            "passages": passages,
            "files": files,
            **facts(state, len(state), state.nbytes),
            "model": about.get("model"),
            **pages,
        }


def remove(
    index: IndexPath,
    documents_ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID",
            help="Documents; the name of a file stands for all its passages or pages.",
            show_default=False,
        ),
    ],
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Remove documents. If one is unknown, none is removed."""
    from ..corpus.page_index import open_corpus

    with open_corpus(existing(index), trust_index=trust) as corpus:
        removed = corpus.remove([_meant(corpus, name) for name in documents_ids])
        left, (passages, files) = len(corpus), corpus.passages
    report = {
        "index": str(index),
        "removed": len(removed),
        "documents": left,
        "passages": passages,
        "files": files,
    }
    line = f"Removed {counted(len(removed))}. {index} holds {counted(left, passages, files)}."
    echo_report(report, line, as_json=as_json)


def _meant(corpus: CorpusIndex, name: str) -> DocumentId:
    """Return the name, or the number if only that can be meant."""
    is_number = name.lstrip("-").isdecimal()
    return int(name) if is_number and name not in corpus.index else name


def verify(index: IndexPath, as_json: Json = False) -> None:
    """Check every file of an index, and that texts and documents agree; exit code 1 if damaged."""
    from ..corpus.committing import verify as verify_files

    damage = verify_files(existing(index))
    if as_json:
        typer.echo(json.dumps({"index": str(index), "damage": damage}))
    else:
        for line in damage:
            echo(line, color=typer.colors.RED)
        if not damage:
            echo(f"{index} is sound.")
    if damage:
        raise typer.Exit(1)


def compact(index: IndexPath, trust: Trust = False, as_json: Json = False) -> None:
    """Give the space of removed and replaced documents back to the disk."""
    from ..corpus.page_index import open_corpus

    with open_corpus(existing(index), trust_index=trust) as corpus:
        before = corpus.index.nbytes
        corpus.compact()
        after = corpus.index.nbytes
    report = {"index": str(index), "bytes_before": before, "bytes_after": after}
    echo_report(report, f"{index}: {before:,} bytes before, {after:,} after.", as_json=as_json)


def warmup(as_json: Json = False) -> None:
    """Compile what indexes need: once per machine, or while an image is built."""
    from ..indexes.warm_up import warm_up

    begin = time.perf_counter()
    with working("Compiling, for about half a minute"):
        warm_up()
    seconds = round(time.perf_counter() - begin, 1)
    echo_report(
        {"seconds": seconds}, f"All kernels are compiled, after {seconds} s.", as_json=as_json
    )
