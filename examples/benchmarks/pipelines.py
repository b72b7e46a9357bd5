"""Whole retrieval systems on one collection: quality, size, build time, latency, memory.

    cd examples && python -m benchmarks.pipelines FOLDER --model MODEL --out RESULTS
    python -m benchmarks.pipelines FOLDER --model NAME --cache TOKENS --documents 20000 --out RESULTS

FOLDER is a collection in BEIR's layout. Every system gets the same token embeddings, computed once
or made elsewhere and read from TOKENS (see :mod:`benchmarks.cached_tokens`), and a process of its
own, so that peak memory is its own. ``--documents`` takes a sample of so many documents, with all
that are relevant to a query.

The table is written after each system, as CSV and Markdown, with two plots: size against quality and
latency against quality. A run that was interrupted goes on with the systems that have no row yet.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cached_tokens import CachedTokens
from benchmarks.memory import forget_peak, peak_megabytes
from pylate_eigenli.errors import require
from pylate_eigenli.evaluation import beir
from pylate_eigenli.evaluation.embeddings import TokenFile, encode_cached
from pylate_eigenli.evaluation.methods import parse
from pylate_eigenli.evaluation.run import evaluate_tokens
from pylate_eigenli.models.text_models import load_model

SYSTEMS = {
    "MaxSim, PyTorch": "full",
    "MaxSim, NumKong": "numkong",
    "EigenLI": "eigenli-32:preset=auto",
    "SV, 8 bits": "eigenli-sv-32:preset=auto",
    "SV, 1 bit": "eigenli-sv-32:preset=auto,dtype=binary",
    "SV, 8 bits + MaxSim": "eigenli-sv-32:preset=auto,rerank=maxsim",
    "SV, 1 bit + MaxSim": "eigenli-sv-32:preset=auto,dtype=binary,rerank=maxsim",
    "SV sketch, 8 bits": "eigenli-sv-32:preset=auto,backend=sketch",
    "SV sketch, 1 bit": "eigenli-sv-32:preset=auto,dtype=binary,backend=sketch",
    "SV sketch, 8 bits + MaxSim": "eigenli-sv-32:preset=auto,backend=sketch,rerank=maxsim",
    "SV sketch, 1 bit + MaxSim": (
        "eigenli-sv-32:preset=auto,dtype=binary,backend=sketch,rerank=maxsim"
    ),
    "SV Voyager": "eigenli-sv-32:preset=auto,backend=voyager",
    "SV FAISS": "eigenli-sv-32:preset=auto,backend=faiss",
    "WARP": "warp",
    "TACHIOM": "tachiom",
    "PLAID": "plaid",
    "Voyager, token index": "voyager",
}
"""Methods of the evaluation by the label they have in the table; other methods may be named too."""


@dataclass(frozen=True)
class Row:
    """The measurements of a system; ``megabytes_before`` building is what tokens and libraries take."""

    system: str
    ndcg_at_10: float
    recall_at_100: float
    bytes_per_document: float
    build_seconds: float
    ms_per_query: float
    ms_per_query_in_batch: float
    peak_megabytes: float
    megabytes_before: float


@dataclass(frozen=True)
class Task:
    """The token embeddings of a collection, read in the process that needs them."""

    collection: beir.Collection
    documents: Callable[[], TokenFile]
    queries: Callable[[], TokenFile]


def _measure(system: str, task: Task, results: Any) -> None:
    """Measure one system and put a Row, or the error, into ``results``."""
    try:
        spec = parse(SYSTEMS.get(system, system))
        columns = ("nDCG@10", "Recall@100")
        documents, queries = task.documents(), task.queries()
        forget_peak()
        before = peak_megabytes()
        result = evaluate_tokens(spec, "", task.collection, documents, queries, columns=columns)
        results.put(
            Row(
                system,
                *(result[column] for column in columns),
                result.bytes_per_document,
                result.build_seconds,
                result.ms_per_query,
                result.ms_per_query_in_batch,
                peak_megabytes(),
                before,
            )
        )
    except Exception as error:  # an extra that is not installed must not stop the others
        results.put(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")


def compare(task: Task, systems: Sequence[str]) -> Iterator[tuple[str, Row | str]]:
    """Measure systems on a collection; yield the row of each, or why it has none."""
    context = multiprocessing.get_context("spawn")
    for name in systems:
        results = context.SimpleQueue()
        process = context.Process(target=_measure, args=(name, task, results))
        process.start()
        process.join()
        outcome = results.get() if not results.empty() else f"exit code {process.exitcode}"
        print(f"{name}: {outcome}", file=sys.stderr, flush=True)
        yield name, outcome


def load(folder: str | Path, model: str, cache: Path, documents: int | None = None) -> Task:
    """Return a collection, or a sample of it, and its token embeddings."""
    collection = _sample(beir.load(folder), documents)
    cached = CachedTokens.of(cache, model, collection)
    if cached is not None:
        return Task(collection, cached.documents, cached.queries)
    encoder = load_model(model)
    encode = partial(encode_cached, encoder, model, cache=cache)
    corpus, queries = list(collection.corpus.values()), list(collection.queries.values())
    encoded = encode(corpus, is_query=False), encode(queries, is_query=True)
    return Task(collection, *(partial(_same, tokens) for tokens in encoded))


def _same(tokens: TokenFile) -> TokenFile:
    return tokens


def _sample(collection: beir.Collection, size: int | None) -> beir.Collection:
    """Return a collection with about so many documents, at least all that are relevant."""
    if size is None or size >= len(collection.corpus):
        return collection
    kept = {i for judged in collection.qrels.values() for i in judged}
    others = [i for i in collection.corpus if i not in kept]
    chosen = np.random.default_rng(0).permutation(len(others))[: max(size - len(kept), 0)]
    kept |= {others[i] for i in chosen}
    corpus = {i: text for i, text in collection.corpus.items() if i in kept}
    return replace(collection, corpus=corpus)


def to_markdown(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    header = (
        "| system | nDCG@10 | Recall@100 | KB / document | build, s | ms / query | "
        "ms / query, batch | peak MB | before building |\n| --- |" + " ---: |" * 8 + "\n"
    )
    return header + "".join(
        f"| {row.system} | {row.ndcg_at_10:.3f} | {row.recall_at_100:.3f} | "
        f"{row.bytes_per_document / 1000:.1f} | {row.build_seconds:.1f} | {row.ms_per_query:.1f} | "
        f"{row.ms_per_query_in_batch:.2f} | {row.peak_megabytes:.0f} | "
        f"{row.megabytes_before:.0f} |\n"
        for row in rows
    )


def plot(rows: Sequence[Row], path: Path, attribute: str, label: str) -> None:
    """Plot an attribute of the systems, on a logarithmic scale, against their nDCG@10."""
    require("matplotlib", "plot", "drawing a plot")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5))
    for row in rows:
        x = getattr(row, attribute)
        ours = SYSTEMS.get(row.system, row.system).startswith("eigenli")
        axes.scatter(x, row.ndcg_at_10, color="tab:blue" if ours else "tab:gray")
        axes.annotate(row.system, (x, row.ndcg_at_10), xytext=(4, 4), textcoords="offset points")
    axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.set_ylabel("nDCG@10")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def run(
    task: Task, stem: Path, systems: Sequence[str] = tuple(SYSTEMS)
) -> tuple[list[Row], dict[str, str]]:
    """Measure systems and write tables and plots to files whose names begin with ``stem``."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    table = stem.with_suffix(".csv")
    known = {row.system: row for row in _read(table)} if table.exists() else {}
    rows = {name: known[name] for name in systems if name in known}
    failures = {}
    for name, outcome in compare(task, [name for name in systems if name not in rows]):
        if isinstance(outcome, Row):
            rows[name] = outcome
        else:
            failures[name] = outcome
        ordered = [rows[name] for name in systems if name in rows]
        with table.open("w", newline="") as file:
            writer = csv.DictWriter(file, [f.name for f in fields(Row)])
            writer.writeheader()
            writer.writerows(asdict(row) for row in ordered)
        stem.with_suffix(".md").write_text(to_markdown(ordered))
    ordered = [rows[name] for name in systems if name in rows]
    if ordered:
        plot(ordered, Path(f"{stem}-size.png"), "bytes_per_document", "bytes per document")
        plot(ordered, Path(f"{stem}-latency.png"), "ms_per_query", "milliseconds per query")
    return ordered, failures


def _read(table: Path) -> Iterator[Row]:
    with table.open() as file:
        for row in csv.DictReader(file):
            yield Row(row.pop("system"), **{name: float(value) for name, value in row.items()})


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", help="a collection in BEIR's layout")
    parser.add_argument(
        "--model", required=True, help="a PyLate model, name or path, or its name in the cache"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--cache", type=Path, help="folder of embeddings, by default in OUT")
    parser.add_argument("--documents", type=int, help="size of the sample, by default all")
    parser.add_argument(
        "--systems", nargs="+", default=list(SYSTEMS), help="labels of the table, or methods"
    )
    options = parser.parse_args(arguments)
    cache = options.cache or options.out / "embeddings"
    task = load(options.folder, options.model, cache, options.documents)
    size = "" if options.documents is None else f"-{options.documents}"
    stem = options.out / f"pipelines-{task.collection.name}{size}"
    rows, failures = run(task, stem, options.systems)
    print(to_markdown(rows))
    for name, reason in failures.items():
        print(f"not measured: {name} ({reason})")


if __name__ == "__main__":
    main()
