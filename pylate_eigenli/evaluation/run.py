"""Methods on collections: quality per query, compression time and bytes per document.

Every method gets the same token embeddings, computed once and kept on disk. What was measured of a
method on a collection is kept as well, under a hash of all it depends on, and not measured again.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from .. import __version__
from ..indexes.exact_search import Hits
from ..storage.disk import replace_file
from ..tokens import TokenBatch, collect
from . import beir, metrics, mteb_data
from .beir import Collection
from .embeddings import TokenFile, encode_cached, fingerprint
from .methods import BUDGETED, FIXED, RelativeMethod, method
from .plaid import Plaid
from .scanning import best

CUTOFFS = (10, 100, 1000)
COLUMNS = tuple(f"{metric}@{cutoff}" for metric in ("Recall", "nDCG", "MRR") for cutoff in CUTOFFS)


@dataclass(frozen=True)
class Result:
    """What was measured of a method on a collection.

    Parameters
    ----------
    per_query
        By metric and cutoff, as ``"nDCG@10"``, the values of the judged queries, always in the same
        order.

    Examples
    --------
    >>> Result("model", "data", "full", 10, 0.1, 512.0, {"nDCG@10": [1.0, 0.5]})["nDCG@10"]
    0.75
    """

    model: str
    data: str
    method: str
    documents: int
    compression_seconds: float
    bytes_per_document: float
    per_query: dict[str, list[float]]

    def __getitem__(self, column: str) -> float:
        """Return the mean of a metric, as ``result["nDCG@10"]``."""
        return float(np.mean(self.per_query[column]))


def expand(names: Iterable[str], ks: Iterable[int]) -> list[str]:
    """Return names of methods, those of families at every budget, each once.

    Examples
    --------
    >>> expand(["full", "eigenli", "ward-4"], [8, 16])
    ['full', 'eigenli-8', 'eigenli-16', 'ward-4']
    """
    sizes = list(ks)
    expanded: list[str] = []
    for name in names:
        if name in BUDGETED and name not in FIXED:
            expanded += [f"{name}-{k}" for k in sizes]
            continue
        if name != "plaid":
            try:
                method(name)
            except ValueError:
                known = ", ".join([*FIXED, "plaid", *BUDGETED])
                raise ValueError(f"unknown method {name!r}: there are {known}") from None
        expanded.append(name)
    return list(dict.fromkeys(expanded))


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
        A ``pylate.models.ColBERT`` or anything with its ``encode``.
    model_name
        Its name or path: what embeddings and results are kept under.
    collections
        See :func:`load`.
    methods
        Names, see :func:`expand`.
    out
        Folder for what was measured. Methods that are in it are not measured again.
    cache
        Folder for token embeddings, by default in ``out``.
    batch_size
        Texts per batch of the model.
    override
        Measure again what has been measured.
    show_progress
        Whether to show progress bars.
    """
    results = []
    for collection in collections:
        sides = (
            (list(collection.corpus.values()), False),
            (list(collection.queries.values()), True),
        )
        known_by = [fingerprint(model, model_name, texts, is_query=q) for texts, q in sides]
        known_by.append(json.dumps([__version__, list(collection.corpus), collection.qrels]))
        digest = hashlib.sha256("".join(known_by).encode()).hexdigest()[:12]
        folder = Path(out) / "runs" / f"{_file_name(collection.name)}-{digest}"
        paths = {name: folder / f"{_file_name(name)}.json" for name in methods}
        if override or not all(path.exists() for path in paths.values()):
            documents, queries = (
                encode_cached(
                    model,
                    model_name,
                    texts,
                    cache or Path(out) / "embeddings",
                    is_query=is_query,
                    batch_size=batch_size,
                    show_progress=show_progress,
                )
                for texts, is_query in sides
            )
        for name, path in paths.items():
            if override or not path.exists():
                folder.mkdir(parents=True, exist_ok=True)
                measured = _measure(name, model_name, collection, documents, queries, show_progress)
                replace_file(path, json.dumps(asdict(measured)).encode())
            results.append(Result(**json.loads(path.read_text())))
    return results


def _measure(
    name: str,
    model_name: str,
    collection: Collection,
    documents: TokenFile,
    queries: TokenFile,
    show_progress: bool,
) -> Result:
    asked = collect([queries[i] for i in range(len(queries))], names="query")
    # One more than is looked at, because the query itself may be among the hits.
    depth = min(max(CUTOFFS) + 1, len(documents))
    bar = tqdm(total=len(documents), desc=f"{collection.name}, {name}", disable=not show_progress)
    with bar:
        search = _search_plaid if name == "plaid" else _search
        hits, seconds, nbytes = search(name, asked, _batches(documents, bar), depth)
    ids = list(collection.corpus)
    run = {
        query: collection.answers(query, [ids[row] for row in found.rows])
        for query, found in zip(collection.queries, hits, strict=True)
    }
    per_query = {}
    for column in COLUMNS:
        metric, cutoff = column.split("@")
        values = metrics.evaluate(run, collection.qrels, metric, int(cutoff))
        per_query[column] = values.tolist()
    return Result(model_name, collection.name, name, len(ids), seconds, nbytes, per_query)


def _search(
    name: str, queries: TokenBatch, batches: Iterable[TokenBatch], depth: int
) -> tuple[list[Hits], float, float]:
    """Return hits, seconds to compress, and bytes per document.

    Nothing is kept of a batch, unless queries depend on all of them.
    """
    chosen = method(name)
    seconds = total = 0.0
    n = 0

    def parts() -> Iterator[Any]:
        nonlocal seconds, total, n
        for batch in batches:
            if not n:
                # The first call compiles kernels: nobody's compression time.
                chosen.encode_documents(collect(list(batch)[:1]))
            begin = time.perf_counter()
            encoded = chosen.encode_documents(batch)
            seconds += time.perf_counter() - begin
            total += chosen.nbytes_per_document(encoded) * len(batch)
            n += len(batch)
            yield encoded

    encoded: Iterable[Any] = parts()
    if isinstance(chosen, RelativeMethod) and chosen.is_relative:
        encoded = list(encoded)
        chosen = chosen.among(encoded)
    hits = best(chosen, chosen.encode_queries(queries), encoded, depth)
    return hits, seconds, total / n


def _search_plaid(
    name: str, queries: TokenBatch, batches: Iterable[TokenBatch], depth: int
) -> tuple[list[Hits], float, float]:
    """As :func:`_search`, of an index of the whole corpus; to compress it is to build the index."""
    plaid = Plaid()
    for batch in batches:
        plaid.add(batch)
    begin = time.perf_counter()
    plaid.build()
    seconds = time.perf_counter() - begin
    return plaid.search(queries, depth), seconds, plaid.nbytes_per_document


def _batches(documents: TokenFile, bar: Any) -> Iterator[TokenBatch]:
    for tokens, offsets in documents.parts:
        yield collect([tokens[begin:end] for begin, end in pairwise(offsets.tolist())])
        bar.update(len(offsets) - 1)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)
