"""``eigenli demo``: search the Python standard library offline, and compare EigenLI with MaxSim."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from .errors import Debug, one_line_errors
from .options import Json
from .terminal import echo, text

if TYPE_CHECKING:
    from ..models.encoder import Advance

QUESTIONS = (
    "how do I compress a file?",
    "run a shell command and capture its output",
    "make a temporary directory",
    "which function sorts a list?",
    "wait until a thread has finished",
)
INDEX_NAME = "standard-library"
_KNOWN_ITEMS = 300
_HITS = 3

Stage = Callable[[str, "int | None"], AbstractContextManager["Advance"]]
"""Opens a stage of the work, given its description and its number of steps, if known."""


@dataclass(frozen=True)
class Hit:
    """A document found for a question."""

    id: str
    score: float
    summary: str


@dataclass(frozen=True)
class Answer:
    """A question and the best documents for it, in order."""

    question: str
    hits: list[Hit]


@dataclass(frozen=True)
class Comparison:
    """The cost of a method, and how well it finds known items."""

    method: str
    bytes_per_document: float
    build_seconds: float
    milliseconds_per_query: float
    success_at_1: float
    mrr_at_10: float


@dataclass(frozen=True)
class Experiment:
    """Everything the demo prints."""

    documents: int
    tokens_per_document: float
    encoding_seconds: float
    answers: list[Answer]
    known_items: int
    comparison: list[Comparison]


def demo(
    questions: Annotated[
        list[str] | None, typer.Argument(help="Questions to ask besides the built-in ones.")
    ] = None,
    documents: Annotated[int, typer.Option(min=50, help="Docstrings to index, at most.")] = 2000,
    k: Annotated[
        int,
        typer.Option("--directions", min=1, help="Directions EigenLI keeps of a document."),
    ] = 32,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME_OR_PATH", help="Use this PyLate model, not the bundled one."),
    ] = None,
    index_folder: Annotated[
        Path | None, typer.Option(help="Keep the index of the docstrings in this folder.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Search Python's standard library by meaning, offline, and compare EigenLI with MaxSim."""
    with one_line_errors(debug), TemporaryDirectory() as scratch:
        path = (index_folder or Path(scratch)) / INDEX_NAME
        with _progress() as stage:
            experiment = _run([*QUESTIONS, *(questions or [])], documents, k, model, path, stage)
        if as_json:
            typer.echo(json.dumps(asdict(experiment), indent=2))
            return
        console = Console(highlight=False)
        for answer in experiment.answers:
            _print_answer(console, answer)
        _print_comparison(console, experiment)
        if index_folder is not None:
            console.print()
            echo(f"The index of the docstrings is kept in {path}.")
            echo(f'Search it: eigenli search {path} "QUESTION"')


def _run(
    questions: Sequence[str], documents: int, k: int, model: str | None, path: Path, stage: Stage
) -> Experiment:
    """Read, encode, index, answer the questions, and compare methods on known items."""
    with stage("Starting PyLate", None):
        from ..corpus.catalogue import Document
        from ..corpus.text_index import TextIndex
        from ..evaluation.embeddings import TokenFile
        from ..evaluation.known_items import known_item_collection, known_items
        from ..evaluation.methods import parse
        from ..evaluation.run import evaluate_tokens
        from ..models.default import fitted_model
        from ..models.standard_library import sample, standard_library_documents
        from ..models.text_encoder import TextEncoder, encode
        from ..spectral.subspace import check_k
    with stage("Reading the standard library", None):
        library = standard_library_documents()
        corpus = sample(library, documents)
        items = known_items(corpus, _KNOWN_ITEMS)
    if not items:
        raise ValueError(f"no docstring among {len(corpus)} is long enough to be a known item")
    with stage("Loading the model", None) as advance:
        encoder = TextEncoder(model or str(fitted_model(library, advance=advance)))
        # Queries first, so that a k that does not fit the model is refused at once.
        queries = encode(encoder, [item.query for item in items], is_query=True)
        check_k(k, queries[0].shape[1])

    collection = known_item_collection(corpus, items)
    changed = [item.document.id for item in items]
    texts = [document.text for document in corpus] + [collection.corpus[i] for i in changed]
    start = time.perf_counter()
    with stage("Encoding documents", len(texts)) as advance:
        embeddings = encode(encoder, texts, advance=advance)
    encoding_seconds = time.perf_counter() - start
    whole, without_query = embeddings[: len(corpus)], embeddings[len(corpus) :]

    with (
        stage("Indexing with EigenLI", None),
        TextIndex(path, model=encoder, override=True, k=k) as index,
    ):
        index.add_encoded([Document(d.id, d.body, title=d.id) for d in corpus], whole)
        found = index.search(questions, _HITS)
    summaries = {document.id: document.summary for document in corpus}
    answers = [
        Answer(question, [Hit(str(hit.id), hit.score, summaries[str(hit.id)]) for hit in hits.hits])
        for question, hits in zip(questions, found, strict=True)
    ]

    tokens = dict(zip(summaries, whole, strict=True))
    tokens |= dict(zip(changed, without_query, strict=True))
    methods = {
        "full": "MaxSim, all tokens",
        f"eigenli-{k}": f"EigenLI, k={k}",
        f"eigenli-sv-{k}:dtype=binary": "EigenLI, one vector of 1 bit",
    }
    comparison = []
    with stage("Searching for known items", len(methods)) as advance:
        for name, label in methods.items():
            result = evaluate_tokens(
                parse(name),
                encoder.name,
                collection,
                TokenFile.of(list(tokens.values())),
                TokenFile.of(queries),
                columns=("MRR@1", "MRR@10"),
            )
            costs = (result.bytes_per_document, result.build_seconds, result.ms_per_query)
            comparison.append(Comparison(label, *costs, result["MRR@1"], result["MRR@10"]))
            advance(1)
    return Experiment(
        documents=len(corpus),
        tokens_per_document=sum(map(len, whole)) / len(whole),
        encoding_seconds=encoding_seconds,
        answers=answers,
        known_items=len(items),
        comparison=comparison,
    )


@contextmanager
def _progress() -> Iterator[Stage]:
    """Show stages on stderr, so that stdout holds only results."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    ) as progress:

        @contextmanager
        def stage(description: str, steps: int | None) -> Iterator[Advance]:
            task = progress.add_task(description, total=steps)
            yield lambda done: progress.advance(task, done)
            progress.update(task, total=steps or 1, completed=steps or 1)

        yield stage


def _print_answer(console: Console, answer: Answer) -> None:
    hits = Table.grid(padding=(0, 2), expand=True)
    hits.add_column(no_wrap=True, style="cyan", ratio=2)
    hits.add_column(no_wrap=True, ratio=3)
    for hit in answer.hits:
        hits.add_row(text(f"  {hit.id}"), text(hit.summary))
    console.print("\n", text(answer.question, "bold"), sep="")
    console.print(hits)


def _print_comparison(console: Console, experiment: Experiment) -> None:
    table = Table(title="The same token embeddings, searched in three ways")
    table.add_column("")
    for heading in ("bytes / document", "build, s", "ms / query", "Success@1", "MRR@10"):
        table.add_column(heading, justify="right")
    for row in experiment.comparison:
        table.add_row(
            row.method,
            f"{row.bytes_per_document:,.0f}",
            f"{row.build_seconds:.2f}",
            f"{row.milliseconds_per_query:.1f}",
            f"{row.success_at_1:.3f}",
            f"{row.mrr_at_10:.3f}",
        )
    console.print()
    console.print(table)
    console.print(
        f"{experiment.documents:,} docstrings of {experiment.tokens_per_document:.0f} tokens on "
        "average; MaxSim and EigenLI store float16. Encoding took "
        f"{experiment.encoding_seconds:.1f} s and is the same for all.\n"
        f"Quality: the queries are the first sentences of {experiment.known_items} docstrings. The "
        "only right answer is the docstring a sentence came from, indexed without it among all "
        f"{experiment.documents:,}.",
        style="dim",
    )
