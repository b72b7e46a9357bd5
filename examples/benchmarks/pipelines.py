"""Whole retrieval systems on one collection: quality, size, build time, latency, memory.

    cd examples && python -m benchmarks.pipelines FOLDER --model MODEL --out RESULTS

FOLDER is a collection in BEIR's layout. Every system gets the same token embeddings, computed once,
and a process of its own, so that peak memory is its own. The table is printed and written as CSV and
Markdown, with two plots: size against quality and latency against quality.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.memory import peak_megabytes
from pylate_eigenli.errors import require
from pylate_eigenli.evaluation import beir
from pylate_eigenli.evaluation.embeddings import TokenFile, encode_cached
from pylate_eigenli.evaluation.methods import parse
from pylate_eigenli.evaluation.run import evaluate_tokens
from pylate_eigenli.models.text_models import load_model

SYSTEMS = {
    "MaxSim, all tokens": "full",
    "PLAID": "plaid",
    "Voyager, token index": "voyager",
    "WARP": "warp",
    "TACHIOM": "tachiom",
    "EigenLI": "eigenli-32",
    "SV exact, int8": "eigenli-sv-32",
    "SV exact, int4": "eigenli-sv-32:dtype=int4",
    "SV exact, 1 bit": "eigenli-sv-32:dtype=binary",
    "SV exact, plus, int8": "eigenli-sv-32:preset=plus",
    "SV exact, plus, 1 bit": "eigenli-sv-32:preset=plus,dtype=binary",
    "SV, FAISS PQ, 1 bit": "faiss-pq:bits=1",
    "SV, FAISS PQ, 2 bits": "faiss-pq:bits=2",
    "SV, FAISS PQ, 4 bits": "faiss-pq:bits=4",
    "SV, FAISS PQ, 8 bits": "faiss-pq:bits=8",
    "SV Voyager": "eigenli-sv-32:backend=voyager",
    "SV FAISS": "eigenli-sv-32:backend=faiss",
    "SV exact, int8 + MaxSim": "eigenli-sv-32:rerank=maxsim",
    "SV exact, 1 bit + MaxSim": "eigenli-sv-32:dtype=binary,rerank=maxsim",
    "SV exact, plus, 1 bit + MaxSim": "eigenli-sv-32:preset=plus,dtype=binary,rerank=maxsim",
    "SV Voyager + MaxSim": "eigenli-sv-32:backend=voyager,rerank=maxsim",
    "SV FAISS + MaxSim": "eigenli-sv-32:backend=faiss,rerank=maxsim",
}
"""Methods of the evaluation by the label they have in the table; other methods may be named too."""


@dataclass(frozen=True)
class Row:
    """The measurements of a system."""

    system: str
    ndcg_at_10: float
    recall_at_100: float
    bytes_per_document: float
    build_seconds: float
    ms_per_query: float
    ms_per_query_in_batch: float
    peak_megabytes: float


def _measure(
    system: str,
    documents: TokenFile,
    queries: TokenFile,
    collection: beir.Collection,
    results: Any,
) -> None:
    """Measure one system and put a Row, or the error, into ``results``."""
    try:
        spec = parse(SYSTEMS.get(system, system))
        columns = ("nDCG@10", "Recall@100")
        result = evaluate_tokens(spec, "", collection, documents, queries, columns=columns)
        results.put(
            Row(
                system,
                *(result[column] for column in columns),
                result.bytes_per_document,
                result.build_seconds,
                result.ms_per_query,
                result.ms_per_query_in_batch,
                peak_megabytes(),
            )
        )
    except Exception as error:  # an extra that is not installed must not stop the others
        results.put(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")


def compare(
    folder: str | Path, model: str, cache: str | Path, systems: Sequence[str]
) -> tuple[list[Row], dict[str, str]]:
    """Measure systems on a collection; return their rows and the errors of the others."""
    collection = beir.load(folder)
    documents, queries = _embeddings(collection, model, cache)
    rows, failures = [], {}
    context = multiprocessing.get_context("spawn")
    for name in systems:
        results = context.SimpleQueue()
        process = context.Process(
            target=_measure, args=(name, documents, queries, collection, results)
        )
        process.start()
        process.join()
        outcome = results.get() if not results.empty() else f"exit code {process.exitcode}"
        if isinstance(outcome, Row):
            rows.append(outcome)
        else:
            failures[name] = outcome
        print(f"{name}: {outcome}", file=sys.stderr, flush=True)
    return rows, failures


def _embeddings(
    collection: beir.Collection, model: str, cache: str | Path
) -> tuple[TokenFile, TokenFile]:
    encoder = load_model(model)
    documents = encode_cached(
        encoder, model, list(collection.corpus.values()), cache, is_query=False
    )
    queries = encode_cached(encoder, model, list(collection.queries.values()), cache, is_query=True)
    return documents, queries


def to_markdown(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    header = (
        "| system | nDCG@10 | Recall@100 | KB / document | build, s | ms / query | "
        "ms / query, batch | peak MB |\n| --- |" + " ---: |" * 7 + "\n"
    )
    return header + "".join(
        f"| {row.system} | {row.ndcg_at_10:.3f} | {row.recall_at_100:.3f} | "
        f"{row.bytes_per_document / 1000:.1f} | {row.build_seconds:.1f} | {row.ms_per_query:.1f} | "
        f"{row.ms_per_query_in_batch:.2f} | {row.peak_megabytes:.0f} |\n"
        for row in rows
    )


def plot(rows: Sequence[Row], path: Path, attribute: str, label: str) -> None:
    """Plot an attribute of the systems, on a logarithmic scale, against their nDCG@10."""
    require("matplotlib", "plot", "drawing a plot")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5))
    for row in rows:
        x = getattr(row, attribute)
        ours = SYSTEMS.get(row.system, row.system).startswith(("eigenli", "faiss-pq"))
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
    folder: str | Path, model: str, out: Path, systems: Sequence[str] = tuple(SYSTEMS)
) -> tuple[list[Row], dict[str, str]]:
    """Measure systems on a collection and write tables and plots to the folder ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    rows, failures = compare(folder, model, out / "embeddings", systems)
    stem = out / f"pipelines-{Path(folder).name}"
    with stem.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    stem.with_suffix(".md").write_text(to_markdown(rows))
    if rows:
        plot(rows, Path(f"{stem}-size.png"), "bytes_per_document", "bytes per document")
        plot(rows, Path(f"{stem}-latency.png"), "ms_per_query", "milliseconds per query")
    return rows, failures


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", help="a collection in BEIR's layout")
    parser.add_argument("--model", required=True, help="a PyLate model, name or path")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument(
        "--systems", nargs="+", default=list(SYSTEMS), help="labels of the table, or methods"
    )
    options = parser.parse_args(arguments)
    rows, failures = run(options.folder, options.model, options.out, options.systems)
    print(to_markdown(rows))
    for name, reason in failures.items():
        print(f"not measured: {name} ({reason})")


if __name__ == "__main__":
    main()
