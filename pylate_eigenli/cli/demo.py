"""``eigenli demo``: search the Python standard library offline, and compare EigenLI with MaxSim."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from .options import AnyModel, Json, drawable
from .terminal import echo, text

QUESTIONS = (
    "how do I compress a file?",
    "run a shell command and capture its output",
    "make a temporary directory",
    "which function sorts a list?",
    "wait until a thread has finished",
)
INDEX_NAME = "standard-library"
_NEXT = (
    "eigenli index my-index FOLDER",
    'eigenli search my-index "a question"',
    "eigenli serve my-index",
)
_KNOWN_ITEMS = 300
_WARM_UP_DOCUMENTS = 128  # enough for an index to choose its settings
_HITS = 3


def demo(
    questions: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUESTION", help="Questions to ask besides the built-in ones."),
    ] = None,
    documents: Annotated[int, typer.Option(min=50, help="Docstrings to index, at most.")] = 2000,
    k: Annotated[
        int,
        typer.Option("-k", "--directions", min=1, help="Directions EigenLI keeps of a document."),
    ] = 32,
    model: AnyModel = None,
    index_folder: Annotated[
        Path | None, typer.Option(help="Keep the index of the docstrings in this folder.")
    ] = None,
    plot: Annotated[
        Path, typer.Option(help="Draw the comparison to this file, .png or .svg.")
    ] = Path("eigenli-demo.png"),
    as_json: Json = False,
) -> None:
    """Search Python's standard library by meaning, offline, and compare EigenLI with MaxSim."""
    with TemporaryDirectory() as scratch:
        path = (index_folder or Path(scratch)) / INDEX_NAME
        drawable(plot)
        asked = [*QUESTIONS, *(questions or [])]
        with _bars() as progress:
            report = _run(asked, documents, k, model, path, plot, progress)
        if as_json:
            typer.echo(json.dumps(report, indent=2))
            return
        _print(Console(highlight=False), report)
        if index_folder is not None:
            echo(f"The index of the docstrings is kept in {path}.")
        echo("Try it on your own files:")
        for command in _NEXT:
            echo(f"  {command}")


def _run(
    questions: Sequence[str],
    documents: int,
    k: int,
    model: str | None,
    path: Path,
    plot: Path,
    progress: Progress,
) -> dict[str, Any]:
    """Read, encode, index, answer the questions, and compare methods on known items."""
    with _stage(progress, "Starting"):
        from ..corpus.document import Document
        from ..corpus.text_index import TextIndex
        from ..evaluation.embeddings import TokenFile
        from ..evaluation.known_items import known_item_collection, known_items
        from ..evaluation.methods import parse
        from ..evaluation.plots import plot as draw
        from ..evaluation.run import evaluate_tokens, warm_up
        from ..models.default import fitted_model
        from ..models.standard_library import sample, standard_library_documents
        from ..models.text_encoder import TextEncoder
        from ..spectral.subspace import check_k
    with _stage(progress, "Reading the standard library"):
        library = standard_library_documents()
        corpus = sample(library, documents)
        items = known_items(corpus, _KNOWN_ITEMS)
    if not items:
        raise ValueError(f"no docstring among {len(corpus)} is long enough to be a known item")
    with _stage(progress, "Preparing the model") as advance:
        encoder = TextEncoder(model or str(fitted_model(library, advance=advance)))
        # Queries first, so that a k that does not fit the model is refused at once.
        queries = encoder.encode_queries([item.query for item in items])
        check_k(k, queries[0].shape[1])

    collection = known_item_collection(corpus, items)
    changed = [item.document.id for item in items]
    texts = [document.text for document in corpus] + [collection.corpus[i] for i in changed]
    start = time.perf_counter()
    with _stage(progress, "Encoding documents", len(texts)) as advance:
        embeddings = encoder.encode_documents(texts, advance)
    encoding_seconds = time.perf_counter() - start
    whole, without_query = embeddings[: len(corpus)], embeddings[len(corpus) :]

    summaries = {document.id: document.summary for document in corpus}
    tokens = dict(zip(summaries, whole, strict=True))
    tokens |= dict(zip(changed, without_query, strict=True))
    sides = TokenFile.of(list(tokens.values())), TokenFile.of(queries)
    methods = {
        "full": "MaxSim, all tokens",
        f"eigenli-{k}:preset=auto": f"EigenLI, k={k}",
        f"eigenli-sv-{k}:preset=auto": "EigenLI-SV, 8 bits",
        f"eigenli-sv-{k}:preset=auto,dtype=binary": "EigenLI-SV, 1 bit",
    }
    with _stage(progress, "Compiling kernels, once", len(methods)) as advance:
        for name in methods:
            warm_up(parse(name), *sides, _WARM_UP_DOCUMENTS)
            advance(1)

    with (
        _stage(progress, "Indexing with EigenLI"),
        TextIndex(path, model=encoder, override=True, k=k) as index,
    ):
        index.add_encoded([Document(d.id, d.body, title=d.id) for d in corpus], whole)
        found = index.answers(questions, _HITS)

    columns = ("MRR@1", "MRR@10")
    results = []
    with _stage(progress, "Searching for known items", len(methods)) as advance:
        for name in methods:
            results.append(evaluate_tokens(parse(name), "", collection, *sides, columns=columns))
            advance(1)
    draw(results, "MRR@10", "bytes_per_document", plot, label=lambda r: methods[r.method])
    return {
        "documents": len(corpus),
        "tokens_per_document": sum(map(len, whole)) / len(whole),
        "encoding_seconds": encoding_seconds,
        "answers": [
            {
                "question": question,
                "hits": [
                    {"id": hit.id, "score": hit.score, "summary": summaries[str(hit.id)]}
                    for hit in answer.hits
                ],
            }
            for question, answer in zip(questions, found, strict=True)
        ],
        "known_items": len(items),
        "comparison": [
            {
                "method": methods[result.method],
                "bytes_per_document": result.bytes_per_document,
                "build_seconds": result.build_seconds,
                "milliseconds_per_query": result.ms_per_query,
                "success_at_1": result["MRR@1"],
                "mrr_at_10": result["MRR@10"],
            }
            for result in results
        ],
        "plot": str(plot),
    }


def _bars() -> Progress:
    console = Console(stderr=True)  # stdout holds only results
    return Progress(console=console, disable=not console.is_terminal)


@contextmanager
def _stage(
    progress: Progress, description: str, steps: int | None = None
) -> Iterator[Callable[[int], None]]:
    if not progress.console.is_terminal:  # there are no bars in a log
        progress.console.print(description)
    task = progress.add_task(description, total=steps)
    yield lambda done: progress.advance(task, done)
    progress.update(task, total=steps or 1, completed=steps or 1)


def _print(console: Console, report: dict[str, Any]) -> None:
    for answer in report["answers"]:
        hits = Table.grid(padding=(0, 2), expand=True)
        hits.add_column(no_wrap=True, style="cyan", ratio=2)
        hits.add_column(no_wrap=True, ratio=3)
        for hit in answer["hits"]:
            hits.add_row(text(f"  {hit['id']}"), text(hit["summary"]))
        console.print("\n", text(answer["question"], "bold"), sep="")
        console.print(hits)
    table = Table("", title="The same token embeddings, searched in four ways")
    for heading in ("bytes", "build, s", "ms / query", "Success@1", "MRR@10"):
        table.add_column(heading, justify="right")
    for row in report["comparison"]:
        method, *numbers = row.values()
        cells = zip(("{:,.0f}", "{:.2f}", "{:.1f}", "{:.3f}", "{:.3f}"), numbers, strict=True)
        table.add_row(method, *(form.format(number) for form, number in cells))
    console.print()
    console.print(table)
    console.print(
        f"{report['documents']:,} docstrings of {report['tokens_per_document']:.0f} tokens on "
        "average. Bytes are per docstring; MaxSim and the subspaces are stored as float16. Encoding took "
        f"{report['encoding_seconds']:.1f} s and is the same for all.\n"
        f"Quality: the queries are the first sentences of {report['known_items']} docstrings. The "
        "only right answer is the docstring a sentence came from, indexed without it among all "
        f"{report['documents']:,}.",
        style="dim",
    )
    echo(f"Quality by size, as a picture: {report['plot']}")
