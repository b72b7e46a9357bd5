"""Whole retrieval systems side by side on one collection: quality, size, speed, memory.

Run ``python -m benchmarks.pipelines FOLDER --model MODEL --out RESULTS`` with a
folder in BEIR's layout. Every system gets the same token embeddings, computed once, and a process
of its own, so that peak memory is its own. The table is printed and written as CSV and Markdown
with two plots, size against quality and latency against quality.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import peak_megabytes
from pylate_eigenli.evaluation import beir
from pylate_eigenli.evaluation.embeddings import TokenFile, encode_cached
from pylate_eigenli.evaluation.metrics import evaluate

_DEPTH = 100
_SINGLE_QUERIES = 50


@dataclass(frozen=True)
class Row:
    """What was measured of a system."""

    system: str
    ndcg_at_10: float
    recall_at_100: float
    bytes_per_document: float
    build_seconds: float
    ms_per_query: float
    ms_per_query_in_batch: float
    peak_megabytes: float


# A system is built in a folder from ids and embeddings and returns its search function.
Search = Callable[[Sequence[Any]], Any]
Build = Callable[[str, list[str], Sequence[Any]], Search]


def _floats(embeddings: Sequence[Any]) -> Any:
    """PyLate's own indexes want float32."""
    return [np.asarray(tokens, np.float32) for tokens in embeddings]


def _maxsim(folder: str, ids: list[str], documents: Sequence[Any]) -> Search:
    from pylate_eigenli.scores.maxsim import maxsim_top_k
    from pylate_eigenli.tokens import collect

    np.save(Path(folder) / "tokens.npy", np.concatenate(list(documents)))
    batch = collect(documents)

    def search(queries: Sequence[Any]) -> list[list[dict[str, str]]]:
        hits = maxsim_top_k(collect(queries, names="query"), batch, _DEPTH)
        return [[{"id": ids[row]} for row in rows] for rows, _ in hits]

    return search


def _plaid(folder: str, ids: list[str], documents: Sequence[Any]) -> Search:
    from pylate import indexes

    index = indexes.PLAID(folder, "plaid", override=True, show_progress=False, device="cpu")
    index.add_documents(ids, _floats(documents))
    return lambda queries: index(_floats(queries), k=_DEPTH)


class _TakesLists:
    """A Voyager index for PyLate 1.6, which gives it lists of vectors; Voyager 2.2 wants arrays."""

    def __init__(self, index: Any) -> None:
        self._index = index

    def add_items(self, vectors: Sequence[Any]) -> Any:
        return self._index.add_items(np.asarray(vectors))

    def query(self, vectors: Sequence[Any], k: int, **options: Any) -> Any:
        return self._index.query(np.asarray(vectors), k, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)


def _voyager_tokens(folder: str, ids: list[str], documents: Sequence[Any]) -> Search:
    from pylate import indexes, retrieve

    dim = documents[0].shape[1]
    index = indexes.Voyager(folder, "voyager", override=True, embedding_size=dim)
    index.index = _TakesLists(index.index)
    index.add_documents(ids, _floats(documents))
    retriever = retrieve.ColBERT(index=index)
    return lambda queries: retriever.retrieve(_floats(queries), k=_DEPTH, k_token=200)


def _pylate_extra(name: str, folder: str, ids: list[str], documents: Sequence[Any]) -> Search:
    from pylate import indexes

    index = getattr(indexes, name)(index_folder=folder, index_name=name, override=True)
    index.add_documents(ids, _floats(documents))
    return lambda queries: index(_floats(queries), k=_DEPTH)


def _eigenli(folder: str, ids: list[str], documents: Sequence[Any], **options: Any) -> Search:
    from pylate_eigenli.indexes.eigenli import EigenLIIndex

    index = EigenLIIndex(folder, show_progress=False, **options)
    index.add_documents(ids, documents)
    return lambda queries: index(queries, k=_DEPTH)


def _sv(folder: str, ids: list[str], documents: Sequence[Any], **options: Any) -> Search:
    from pylate_eigenli.indexes.single_vector import EigenLISVIndex

    index = EigenLISVIndex(folder, show_progress=False, n_candidates=_DEPTH, **options)
    index.add_documents(ids, documents)
    return lambda queries: index(queries, k=_DEPTH)


def _product_quantizer(folder: str, ids: list[str], documents: Sequence[Any], bits: int) -> Search:
    """What the paper quantizes with: the vectors in FAISS' IndexPQ, and nothing beside it."""
    from pylate_eigenli.indexes.ann.faiss import FaissBackend, FaissOptions
    from pylate_eigenli.tokens import collect
    from pylate_eigenli.vectors.encoder import Projections, SVSettings
    from pylate_eigenli.vectors.packing import pack_moments, packed_dim

    width = packed_dim(documents[0].shape[1])
    # "np": without an optimisation for Hamming distances, which takes most of the time.
    options = FaissOptions(factory=f"PQ{width * bits // 8}x8np")
    backend = FaissBackend(width, len(ids), options)
    vectors = Projections().packed(collect(documents), SVSettings()).numpy()
    backend.train(vectors)
    backend.add(np.arange(len(ids)), vectors)
    (Path(folder) / "pq").write_bytes(backend.to_bytes().tobytes())

    def search(queries: Sequence[Any]) -> list[list[dict[str, str]]]:
        asked = pack_moments(collect(queries, names="query")).numpy()
        labels, _ = backend.search(asked, _DEPTH)
        return [[{"id": ids[label]} for label in row if label >= 0] for row in labels]

    return search


_RERANKED: dict[str, Any] = {"rerank": "maxsim", "keep_tokens": "int8"}
SYSTEMS: dict[str, Build] = {
    "MaxSim, all tokens": _maxsim,
    "PLAID": _plaid,
    "Voyager, token index": _voyager_tokens,
    "WARP": partial(_pylate_extra, "WARP"),
    "TACHIOM": partial(_pylate_extra, "TachiomIndex"),
    "EigenLI": _eigenli,
    "SV exact, int8": _sv,
    "SV exact, int4": partial(_sv, dtype="int4"),
    "SV exact, 1 bit": partial(_sv, dtype="binary"),
    "SV exact, plus, int8": partial(_sv, preset="plus"),
    "SV exact, plus, 1 bit": partial(_sv, preset="plus", dtype="binary"),
    **{
        f"SV, FAISS PQ, {bits} bit{'s' * (bits > 1)}": partial(_product_quantizer, bits=bits)
        for bits in (1, 2, 4, 8)
    },
    "SV Voyager": partial(_sv, backend="voyager"),
    "SV FAISS": partial(_sv, backend="faiss"),
    "SV exact, int8 + MaxSim": partial(_sv, **_RERANKED),
    "SV exact, 1 bit + MaxSim": partial(_sv, dtype="binary", **_RERANKED),
    "SV exact, plus, 1 bit + MaxSim": partial(_sv, preset="plus", dtype="binary", **_RERANKED),
    "SV Voyager + MaxSim": partial(_sv, backend="voyager", **_RERANKED),
    "SV FAISS + MaxSim": partial(_sv, backend="faiss", **_RERANKED),
}


# Others cannot be built of a few documents, or learn from them for too long.
_WARMED_UP = {name for name in SYSTEMS if name.startswith(("EigenLI", "SV exact", "MaxSim"))}


def _measure(
    name: str,
    documents: TokenFile,
    queries: TokenFile,
    collection: beir.Collection,
    results: Any,
) -> None:
    """Measure one system and put a Row, or what went wrong, into ``results``."""
    try:
        ids = list(collection.corpus)
        texts = [queries[i] for i in range(len(queries))]
        tokens = [documents[i] for i in range(len(documents))]
        with tempfile.TemporaryDirectory() as folder:
            # The first document loads libraries and compiles kernels: nobody's build time.
            with tempfile.TemporaryDirectory() as warm_up:
                if name in _WARMED_UP:
                    SYSTEMS[name](warm_up, ids[:200], tokens[:200])(texts[:1])
            begin = time.perf_counter()
            search = SYSTEMS[name](folder, ids, tokens)
            build = time.perf_counter() - begin
            size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
            search(texts[:1])
            single = []
            for text in texts[:_SINGLE_QUERIES]:
                begin = time.perf_counter()
                search([text])
                single.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            hits = search(texts)
            batch = time.perf_counter() - begin
            run = {
                query: [hit["id"] for hit in ranking]
                for query, ranking in zip(collection.queries, hits, strict=True)
            }
        results.put(
            Row(
                name,
                float(evaluate(run, collection.qrels, "nDCG", 10).mean()),
                float(evaluate(run, collection.qrels, "Recall", 100).mean()),
                size / len(ids),
                build,
                float(np.median(single)) * 1e3,
                batch / len(texts) * 1e3,
                peak_megabytes(),
            )
        )
    except Exception as error:  # an extra that is not installed must not stop the others
        results.put(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")


def compare(
    folder: str | Path, model: str, cache: str | Path, systems: Sequence[str]
) -> tuple[list[Row], dict[str, str]]:
    """Measure systems on a collection; return their rows and why others could not run."""
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
    from pylate import models

    encoder = models.ColBERT(model_name_or_path=model)
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
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('plots need `pip install "pylate-eigenli[plot]"`') from error
    figure, axes = plt.subplots(figsize=(8, 5))
    for row in rows:
        x = getattr(row, attribute)
        colour = "tab:blue" if row.system.startswith(("EigenLI", "SV")) else "tab:gray"
        axes.scatter(x, row.ndcg_at_10, color=colour)
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
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    options = parser.parse_args(arguments)
    rows, failures = run(options.folder, options.model, options.out, options.systems)
    print(to_markdown(rows))
    for name, reason in failures.items():
        print(f"not measured: {name} ({reason})")


if __name__ == "__main__":
    main()
