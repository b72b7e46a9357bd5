"""``eigenli search``: one question, a prompt, or a question per line of stdin."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from .options import IndexPath, Json, Model, Top, Trust, existing
from .terminal import text

if TYPE_CHECKING:
    from ..corpus.hits import Answer


def search(
    index: IndexPath,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUESTION",
            help="What to look for, in one or several words; without it, questions are asked for, "
            "or read from stdin, one per line.",
        ),
    ] = None,
    top: Top = 5,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show what each token of the query contributes.")
    ] = False,
    rerank: Annotated[
        str | None,
        typer.Option(help="How an index of single vectors re-ranks: none, eigenli or maxsim."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help='Only documents with this metadata, or within bounds, in quotes: "year>=2020". May '
            "be repeated; of several values of a key, any will do.",
        ),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--text", help="Show whole texts, not the parts that suit the question.")
    ] = False,
    model: Model = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Search an index of texts or of pages."""
    from ..corpus.metadata import parse_where
    from ..corpus.page_index import open_corpus

    conditions = parse_where(where or [])
    console = Console(highlight=False)
    with open_corpus(existing(index), model, trust_index=trust) as corpus:
        question = None if words is None else " ".join(words).strip()
        if question == "":
            raise ValueError("the question is empty")
        with Console(stderr=True).status("Loading the model"):
            corpus.warm_up()
        for query in [question] if question else _asked(prompt=not as_json):
            corpus.index.refresh()  # a prompt may stay open while others change the index
            begin = time.perf_counter()
            (answer,) = corpus.answers(
                [query], top, where=conditions, explain=explain, rerank=rerank
            )
            milliseconds = (time.perf_counter() - begin) * 1e3
            if as_json:
                typer.echo(json.dumps(_as_dict(query, answer, milliseconds)))
            else:
                _print(console, query, answer, milliseconds, whole)


def _asked(prompt: bool) -> Iterator[str]:
    """Yield queries from a prompt, or line by line if stdin is not a terminal."""
    if not sys.stdin.isatty():
        yield from filter(None, map(str.strip, sys.stdin))
        return
    if prompt:
        typer.echo("Type a query; an empty line ends.", err=True)
    with suppress(ImportError):
        import readline  # noqa: F401  (gives the prompt a history, where there is one)
    with suppress(EOFError, KeyboardInterrupt):
        while query := input("search> ").strip():
            yield query


def _as_dict(query: str, answer: Answer, milliseconds: float) -> dict[str, Any]:
    hits = []
    for hit in answer.hits:
        shown: dict[str, Any] = {
            "id": hit.id,
            "score": hit.score,
            "share": hit.share,
            "title": hit.title,
            "snippet": hit.snippet,
            "text": hit.text,
            "metadata": dict(hit.metadata),
            "file": hit.file,
            "page": hit.page,
        }
        if hit.contributions is not None:
            shown["contributions"] = hit.contributions.tolist()
        hits.append(shown)
    return {
        "query": query,
        "tokens": answer.tokens,
        "milliseconds": round(milliseconds, 3),
        "hits": hits,
    }


def _print(console: Console, query: str, answer: Answer, milliseconds: float, whole: bool) -> None:
    from ..corpus.hits import by_file

    console.print("\n", text(query, "bold"), text(f" {milliseconds:.0f} ms", "dim"), sep="")
    if not answer.hits:
        console.print("  nothing found", style="dim")
    explained = [hit.contributions for hit in answer.hits if hit.contributions is not None]
    highest = max((float(contributions.max()) for contributions in explained), default=0.0)
    for rank, group in enumerate(by_file(answer.hits), start=1):
        best = group[0]
        console.print(text(f"{rank:>2}. ").append(text(best.title or best.id, "bold cyan")))
        for hit in group:
            place = [hit.id] if best.title else []  # which is the heading otherwise
            place += [] if hit.page is None else [f"page {hit.page}"]
            named = Text().append(text("".join(f"{part}  " for part in place), "dim"))
            named.append(f"{hit.share:.0%}", style="green")
            shown = [named]
            if hit.text:
                shown += map(text, hit.text.splitlines() if whole else [hit.snippet])
            if hit.contributions is not None:
                shown.append(_heat(answer.tokens or [], hit.contributions.tolist(), highest))
            for line in shown:
                console.print(Padding(line, (0, 0, 0, 4), expand=False))


def _heat(tokens: list[str], contributions: list[float], highest: float) -> Text:
    """Return the tokens of a query with their contributions, the larger the darker."""
    heat = Text()
    for token, contribution in zip(tokens, contributions, strict=True):
        share = max(contribution, 0.0) / highest if highest else 0.0
        light = round(255 - 150 * share)
        shade = f"black on rgb({light},{light},255)"
        heat.append(text(f"{token}:{contribution:.2f}", shade)).append(" ")
    return heat
