"""The evaluation harness: methods on collections, with quality per query, size and times.

Every method gets the same token embeddings, computed once and kept on disk. Results are kept too,
under a hash of everything they depend on, and are not measured again.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from .. import __version__
from ..storage.disk import make_folder, replace_file
from ..tokens import TokenBatch, collect
from . import beir, metrics, mteb_data
from .beir import Collection
from .embeddings import TokenFile, embeddings_key, encode_cached
from .methods import Hits, Method, Spec, parse

CUTOFFS = (10, 100, 1000)
COLUMNS = tuple(f"{metric}@{cutoff}" for metric in ("Recall", "nDCG", "MRR") for cutoff in CUTOFFS)

_WARM_UP_DOCUMENTS = 8
# Latency is measured on this many single queries, or for this many seconds.
_SINGLE_QUERIES = 50
_SINGLE_SECONDS = 5.0
_SINGLE_DEPTH = 100


@dataclass(frozen=True)
class Result:
    """The quality of a method on a collection, and its costs.

    Parameters
    ----------
    model, data, method, documents
        Names of the model, the collection and the method, and the number of documents.
    per_query
        By metric and cutoff, such as ``"nDCG@10"``, the values of the judged queries, always in the
        same order.
    build_seconds
        Time to build from token embeddings, without reading them, and to learn from queries.
    bytes_per_document
        Bytes on disk that a search needs, per document.
    ms_per_query, ms_per_query_in_batch
        Median milliseconds of a query on its own, and mean of all queries in one call.

    Examples
    --------
    >>> result = Result("model", "data", "full", 10, {"nDCG@10": [1.0, 0.5]}, 0.1, 512.0, 1.0, 0.5)
    >>> result["nDCG@10"]
    0.75
    """

    model: str
    data: str
    method: str
    documents: int
    per_query: dict[str, list[float]]
    build_seconds: float
    bytes_per_document: float
    ms_per_query: float
    ms_per_query_in_batch: float

    def __getitem__(self, column: str) -> float:
        """Return the mean of a metric, as in ``result["nDCG@10"]``."""
        return float(np.mean(self.per_query[column]))


def load(data: str) -> list[Collection]:
    """Return the collections of a folder in BEIR's layout or of an mteb task of that name."""
    if Path(data).is_dir():
        return [beir.load(data)]
    try:
        return mteb_data.load(data)
    except KeyError:
        raise ValueError(f"{data!r} is neither a folder nor a task that mteb knows") from None
    except ImportError as error:
        raise ImportError(f"{data!r} is not a folder, and {error}") from error


def evaluate(
    model: Any,
    model_name: str,
    collections: Iterable[Collection],
    methods: Sequence[str],
    out: str | Path,
    *,
    cache: str | Path | None = None,
    batch_size: int = 32,
    override: bool = False,
    show_progress: bool = True,
) -> list[Result]:
    """Measure methods on collections.

    Parameters
    ----------
    model
        A ``pylate.models.ColBERT`` or any object with its ``encode``, or a
        ``sentence_transformers.MultiVectorEncoder``.
    model_name
        Its name or path, under which embeddings and results are kept.
    collections
        See :func:`load`.
    methods
        Names, see :func:`pylate_eigenli.evaluation.methods.expand`.
    out
        Folder for results. Results that it already holds are not measured again.
    cache
        Folder for token embeddings, by default in ``out``.
    batch_size
        Texts per batch of the model.
    override
        Whether to measure again if there is a result.
    show_progress
        Whether to show progress bars.
    """
    specs = [parse(name) for name in methods]
    for spec in specs:
        spec.check()
    encode = partial(
        encode_cached,
        model,
        model_name,
        cache=cache or Path(out) / "embeddings",
        batch_size=batch_size,
        show_progress=show_progress,
    )
    results = []
    for collection in collections:
        documents, queries = list(collection.corpus.values()), list(collection.queries.values())
        results += evaluate_once(
            specs,
            model_name,
            collection,
            partial(encode, documents, is_query=False),
            partial(encode, queries, is_query=True),
            out,
            key=[
                embeddings_key(model, model_name, documents, is_query=False),
                embeddings_key(model, model_name, queries, is_query=True),
            ],
            override=override,
            show_progress=show_progress,
        )
    return results


def evaluate_once(
    specs: Iterable[Spec],
    model_name: str,
    collection: Collection,
    documents: Callable[[], TokenFile],
    queries: Callable[[], TokenFile],
    out: str | Path,
    *,
    key: Sequence[str],
    sample: Callable[[], TokenFile] | None = None,
    override: bool = False,
    show_progress: bool = True,
) -> list[Result]:
    """Measure methods on one collection, except those with a result in ``out``.

    ``documents`` and ``queries`` return the token embeddings, and are called only if something has
    to be measured; ``key`` identifies the embeddings. Methods that learn from queries learn from
    ``sample``, by default from the queries themselves, without judgements.
    """
    judged = [list(collection.corpus), collection.qrels, collection.ignore_identical_ids]
    known_by = json.dumps([__version__, list(key), judged])
    digest = hashlib.sha256(known_by.encode()).hexdigest()[:12]
    folder = Path(out) / "runs" / f"{_file_name(collection.name)}-{digest}"
    paths = {spec: folder / f"{_file_name(spec.name)}.json" for spec in specs}
    missing = [spec for spec, path in paths.items() if override or not path.exists()]
    tokens = (documents(), queries()) if missing else None
    learnt = sample() if missing and sample else None
    for spec in missing:
        assert tokens is not None
        result = evaluate_tokens(
            spec, model_name, collection, *tokens, sample=learnt, show_progress=show_progress
        )
        make_folder(folder)
        replace_file(paths[spec], json.dumps(asdict(result)).encode())
    return [Result(**json.loads(path.read_text())) for path in paths.values()]


def evaluate_tokens(
    spec: Spec,
    model_name: str,
    collection: Collection,
    documents: TokenFile,
    queries: TokenFile,
    *,
    sample: TokenFile | None = None,
    columns: Sequence[str] = COLUMNS,
    show_progress: bool = False,
) -> Result:
    """Measure one method on the token embeddings of a collection, in the order of its texts.

    ``sample`` has the queries to learn from, if not those that are asked.
    """
    cutoffs = [int(column.partition("@")[2]) for column in columns]
    title = f"{collection.name}, {spec.name}" if show_progress else None
    # One more than the metrics look at, because the query itself may be among the hits.
    found, costs = _measure(spec, documents, queries, sample or queries, max(cutoffs) + 1, title)
    ids = list(collection.corpus)
    run = {
        query: collection.answers(query, [ids[row] for row in hits.rows])
        for query, hits in zip(collection.queries, found, strict=True)
    }
    per_query = {
        column: metrics.evaluate(run, collection.qrels, column.partition("@")[0], cutoff).tolist()
        for column, cutoff in zip(columns, cutoffs, strict=True)
    }
    return Result(model_name, collection.name, spec.name, len(ids), per_query, **costs)


def _measure(
    spec: Spec,
    documents: TokenFile,
    queries: TokenFile,
    sample: TokenFile,
    depth: int,
    title: str | None,
) -> tuple[list[Hits], dict[str, float]]:
    """Build a method in a temporary folder and search it; return its hits and its costs."""
    asked, learnt = (
        collect([file[i] for i in range(len(file))], names="query") for file in (queries, sample)
    )
    first = collect([queries[0]], names="query")
    depth = min(depth, len(documents))
    if not spec.family.learns:
        warm_up(spec, documents, queries, _WARM_UP_DOCUMENTS)
    with TemporaryDirectory() as folder, closing(spec.open(folder)) as method:
        build_seconds = 0.0
        with tqdm(total=len(documents), desc=title, disable=title is None) as bar:
            for tokens, offsets in documents.parts:
                batch = collect([tokens[begin:end] for begin, end in pairwise(offsets.tolist())])
                build_seconds += _seconds(method.add, batch)
                bar.update(len(batch))
        build_seconds += _seconds(method.finish)
        build_seconds += _seconds(method.fit_queries, learnt)
        method.search(first, depth)
        costs = {
            "build_seconds": build_seconds,
            "bytes_per_document": method.nbytes / len(documents),
            "ms_per_query": 1e3 * _latency(method, asked, min(depth, _SINGLE_DEPTH)),
        }
        begin = time.perf_counter()
        hits = method.search(asked, depth)
        costs["ms_per_query_in_batch"] = 1e3 * (time.perf_counter() - begin) / len(queries)
    return hits, costs


def warm_up(spec: Spec, documents: TokenFile, queries: TokenFile, size: int) -> None:
    """Load libraries and compile kernels with a few documents, so that no time includes it."""
    with TemporaryDirectory() as folder, closing(spec.open(folder)) as method:
        method.add(collect([documents[i] for i in range(min(size, len(documents)))]))
        method.search(collect([queries[0]], names="query"), 1)


def _seconds(call: Callable[..., object], *arguments: object) -> float:
    begin = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - begin


def _latency(method: Method, queries: TokenBatch, depth: int) -> float:
    """Return the median seconds of searches for one query each."""
    seconds: list[float] = []
    for tokens in islice(iter(queries), _SINGLE_QUERIES):
        seconds.append(_seconds(method.search, collect([tokens], names="query"), depth))
        if sum(seconds) > _SINGLE_SECONDS:
            break
    return float(np.median(seconds))


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.=-]+", "-", name)
