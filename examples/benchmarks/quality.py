"""Methods on several collections with several models: one table of nDCG@10 per model.

    cd examples && python -m benchmarks.quality --models NAME=FOLDER... --collections FOLDER... \\
        [--methods METHOD...] [-k K...] [--metric nDCG@10] --cache FOLDER [--out FOLDER] \\
        [--ignore-identical-ids [COLLECTION...]] [--plot FILE.png]

Rows are methods and columns are collections; the last column is the geometric mean of the ratios to
full MaxSim, with a 95 % bootstrap interval. ``--plot`` draws these ratios by size.

With ``--paper`` and the name of a model in the paper, texts are encoded as in the paper, the methods
are the paper's, and a second table has our numbers, the paper's, and the differences:

    python -m benchmarks.quality --paper answerai-colbert-small --models answerai=FOLDER \\
        --collections scifact arguana --cache CACHE --ignore-identical-ids arguana

Token embeddings are computed once and kept in the cache. The cache may also hold embeddings made
elsewhere, which are used as they are: see :mod:`benchmarks.cached_tokens`. Results are kept in OUT
and not measured again.

Methods with ``fit_queries=true`` learn from the queries, without judgements; or, if the cache has
such a file, from the queries of ``NAME_COLLECTION_sample.npz``, for instance documents encoded as
queries.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from benchmarks.cached_tokens import CachedTokens
from pylate_eigenli.evaluation import beir, plots, run
from pylate_eigenli.evaluation.beir import Collection
from pylate_eigenli.evaluation.bootstrap import geometric_interval
from pylate_eigenli.evaluation.methods import expand, parse
from pylate_eigenli.evaluation.paper import results as paper
from pylate_eigenli.evaluation.report import Report
from pylate_eigenli.evaluation.run import Result
from pylate_eigenli.models.text_models import load_model

METHODS = [
    "full",
    "eigenli:preset=auto",
    "eigenli-sv-32:preset=auto",
    "eigenli-sv-32:preset=auto,fit_queries=true",
    "eigenli-sv-32:preset=auto,dtype=int4",
    "eigenli-sv-32:preset=auto,dtype=int2",
    "eigenli-sv-32:preset=auto,dtype=binary",
    "eigenli",
    "eigenli-sv-32",
    "eigenli-sv-32:dtype=int4",
    "eigenli-sv-32:dtype=int2",
    "eigenli-sv-32:dtype=binary",
    "ward",
    "kmeans-32",
    "muvera",
    "muvera-centered",
]
PAPER_METHODS = [
    "full",
    "eigenli",
    "kmeans",
    "ward",
    "eigenli-sv-32",
    "eigenli-sv-32:centering=both",
    "eigenli-32:centering=both",
    "muvera",
    "muvera-centered",
]
_BITS = {"int4": "4 bits", "int2": "2 bits", "binary": "1 bit"}  # other codes have 8
_NAMES = {
    "full": "all tokens, MaxSim",
    "eigenli:preset=auto": "EigenLIIndex",
    "eigenli-sv:preset=auto": "EigenLISVIndex",
    "eigenli": "the paper's EigenLI",
    "eigenli-sv": "the paper's EigenLI-SV",
    "ward": "Ward pooling",
    "kmeans": "k-means++ pooling",
    "muvera": "MUVERA",
    "muvera-centered": "MUVERA, centred",
}
_IGNORE = "collections with queries that are documents too, such as arguana; without names, all"


@dataclass(frozen=True)
class Options:
    """Where embeddings and results are kept, and how texts are encoded."""

    cache: Path
    out: Path
    encoding: dict[str, object]
    batch_size: int = 32


def load(folder: str, ignored: Sequence[str] | None) -> Collection:
    """Read a collection. ``ignored``: collections whose queries are documents too; [] for all."""
    collection = beir.load(folder)
    same_ids = ignored is not None and (not ignored or collection.name in ignored)
    return replace(collection, ignore_identical_ids=same_ids)


def results_of(
    name: str,
    folder: str,
    collections: Iterable[Collection],
    methods: Sequence[str],
    options: Options,
) -> list[Result]:
    """Measure methods on collections with one model, which is only loaded if it has to encode."""
    results: list[Result] = []
    model = None
    for collection in collections:
        cached = CachedTokens.of(options.cache, name, collection)
        if cached is not None:
            results += run.evaluate_once(
                map(parse, methods),
                name,
                collection,
                cached.documents,
                cached.queries,
                options.out,
                key=cached.key,
                sample=cached.sample,
            )
            continue
        model = model or load_model(folder, **options.encoding)
        found = run.evaluate(
            model,
            folder,
            [collection],
            methods,
            options.out,
            cache=options.cache,
            batch_size=options.batch_size,
        )
        results += [replace(result, model=name) for result in found]
    return results


def table(results: Sequence[Result], metric: str) -> str:
    """Return the table of one model as Markdown."""
    by_name = {(result.method, result.data): result for result in results}
    methods = list(dict.fromkeys(result.method for result in results))
    names = list(dict.fromkeys(result.data for result in results))
    model = results[0].model
    lines = [
        f"| {metric}, {model} | bytes / document | {' | '.join(names)} | ratio to full MaxSim |",
        "| --- |" + " ---: |" * (len(names) + 2),
    ]
    for method in methods:
        rows = [by_name[method, name] for name in names]
        cells = [f"{rows[0].bytes_per_document:,.0f}", *(f"{row[metric]:.4f}" for row in rows)]
        ratio = ""
        if ("full", names[0]) in by_name and method != "full":
            full = [by_name["full", name].per_query[metric] for name in names]
            gain = geometric_interval([row.per_query[metric] for row in rows], full)
            ratio = "{:.3f} ({:.3f}, {:.3f})".format(*(1 + bound for bound in gain))
        lines.append(f"| {method} | {' | '.join(cells)} | {ratio} |")
    return "\n".join(lines) + "\n"


def paper_table(results: Sequence[Result], metric: str) -> str:
    """Return our numbers, the paper's and the difference, as Markdown."""
    names = list(dict.fromkeys(result.data for result in results))
    lines = [
        f"| {metric}, {results[0].model}: ours / paper / difference | {' | '.join(names)} |",
        "| --- |" + " ---: |" * len(names),
    ]
    rows: dict[str, dict[str, str]] = {}
    for row in Report(results).rows:
        ours = row.result[metric]
        if metric in row.paper:
            printed = row.paper[metric]
            cell = f"{ours:.4f} / {printed:.4f} / {ours - printed:+.4f}"
        else:
            cell = f"{ours:.4f}"
        rows.setdefault(row.result.method, {})[row.result.data] = cell
    for method, cells in rows.items():
        lines.append(f"| {method} | {' | '.join(cells.get(name, '') for name in names)} |")
    return "\n".join(lines) + "\n"


def shares(results: Sequence[Result], metric: str) -> list[Result]:
    """Return one result per model and method: its share of full MaxSim's metric over collections.

    The share is a geometric mean, the size an arithmetic one. Full MaxSim has to be among the methods.
    """
    full = {(row.model, row.data): row[metric] for row in results if row.method == "full"}
    summaries = []
    by_method = sorted(results, key=lambda row: (row.model, row.method))
    for _, group in groupby(by_method, key=lambda row: (row.model, row.method)):
        rows = list(group)
        ratios = [row[metric] / full[row.model, row.data] for row in rows]
        share = float(np.exp(np.log(np.maximum(ratios, 1e-3)).mean()))
        size = float(np.mean([row.bytes_per_document for row in rows]))
        column = {f"share of MaxSim's {metric}": [share]}
        summaries.append(
            replace(rows[0], data=rows[0].model, per_query=column, bytes_per_document=size)
        )
    return summaries


def plot(results: Sequence[Result], metric: str, path: Path) -> None:
    """Draw the shares of full MaxSim by size, a panel for each model."""
    order = {name: place for place, name in enumerate(_NAMES.values())}
    summaries = sorted(shares(results, metric), key=lambda row: order.get(_series(row), len(order)))
    (column,) = summaries[0].per_query
    plots.plot(summaries, column, "bytes_per_document", path, label=_series, mark=_mark)


def _series(result: Result) -> str:
    """Return the name of a method without its k and the precision of its codes."""
    plain, _, options = result.method.partition(":")
    kept = [option for option in options.split(",") if option and not option.startswith("dtype=")]
    name = ":".join([re.sub(r"-[0-9]+$", "", plain), *kept[:1]])
    return ",".join([_NAMES.get(name, name), *kept[1:]])


def _mark(result: Result) -> str:
    """Return what tells the points of a series apart: bits of a single vector, else k."""
    spec = parse(result.method)
    if spec.family.name == "eigenli-sv":
        return _BITS.get(str(spec.options.get("dtype")), "8 bits")
    return "" if spec.k is None else str(spec.k)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--models", nargs="+", required=True, metavar="NAME=FOLDER")
    add("--collections", nargs="+", required=True, metavar="FOLDER")
    add("--methods", nargs="+", help="names or families; by default the usual or the paper's")
    add("-k", type=int, nargs="+", default=[8, 16, 32], help="vectors per document of families")
    add("--metric", default="nDCG@10", choices=run.COLUMNS)
    add("--cache", type=Path, required=True, help="folder for token embeddings")
    add("--out", type=Path, default=Path("quality"), help="folder for results")
    add("--batch-size", type=int, default=32)
    add("--ignore-identical-ids", nargs="*", metavar="COLLECTION", help=_IGNORE)
    add("--plot", type=Path, metavar="FILE", help="draw the shares of full MaxSim by size")
    add("--paper", metavar="MODEL", help="compare with the paper's numbers of this model")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print one table per model."""
    given = _parser().parse_args(arguments)
    if given.paper:
        paper.canonical("model", given.paper)  # refuses a model that the paper does not have
    methods = expand(given.methods or (PAPER_METHODS if given.paper else METHODS), given.k)
    for method in methods:
        parse(method).check()
    collections = [load(folder, given.ignore_identical_ids) for folder in given.collections]
    if given.plot and "full" not in methods:
        raise ValueError("--plot draws shares of full MaxSim: add full to --methods")
    encoding = dict(paper.ENCODING) if given.paper else {}
    options = Options(given.cache, given.out, encoding, given.batch_size)
    measured: list[Result] = []
    for model in given.models:
        name, _, folder = model.rpartition("=")
        results = results_of(name or Path(folder).name, folder, collections, methods, options)
        measured += results
        print(table(results, given.metric))
        if given.paper:
            print(paper_table([replace(r, model=given.paper) for r in results], given.metric))
    if given.plot:
        plot(measured, given.metric, given.plot)


if __name__ == "__main__":
    main()
