"""Many clients at once that search and change an index through ``eigenli serve``.

    cd examples && python -m benchmarks.load --seconds 60

The server has a small synthetic index. Most clients search it while the others add and remove
documents. At the end every answer is compared, bit by bit, with the right answer for the generation
that it names.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import synthetic
from pylate_eigenli.indexes.eigenli import EigenLIIndex

if TYPE_CHECKING:
    import httpx

_DIM, _TOKENS, _QUERY_TOKENS, _DIRECTIONS = 16, 12, 6, 4
_QUERIES = 20
_RESULTS = 10
_WRITERS_SHARE = 0.1


@dataclass(frozen=True)
class Report:
    """Counts of answers, changes and errors, and the latency that clients saw."""

    seconds: float
    clients: int
    answers: int
    changes: int
    errors: int
    inconsistent: int
    states_seen: int
    median_ms: float
    p95_ms: float


@dataclass(frozen=True)
class _Found:
    """An answer: the query's number, its generation, and the ids and scores found."""

    query: int
    generation: int
    hits: list[tuple[int, float]]


@dataclass(frozen=True)
class _Change:
    """A change: the generation it made, and the documents added or removed."""

    generation: int
    ids: list[int]
    present: bool


class _Log:
    """Everything that all clients have seen."""

    def __init__(self) -> None:
        self.found: list[_Found] = []
        self.changes: list[_Change] = []
        self.latencies: list[float] = []
        self.errors: list[str] = []


@contextmanager
def serving(index: Path, *arguments: str) -> Iterator[str]:
    """Run ``eigenli serve`` in a process of its own; yields its address.

    Raises
    ------
    RuntimeError
        It does not start, or does not shut down well when asked to.
    """
    command = [sys.executable, "-m", "pylate_eigenli.cli", "serve", str(index)]
    process = subprocess.Popen(
        [*command, "--port", "0", "--json", *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server ended with exit code {process.wait()}")
        yield json.loads(line)["url"]
        process.send_signal(signal.SIGINT)
        if process.wait(60) != 0:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
    finally:
        process.kill()
        process.communicate()


def run(seconds: float, clients: int, documents: int) -> Report:
    """Put a server under load and check every answer."""
    vectors = synthetic.documents(documents, _TOKENS, _DIM)
    queries = synthetic.queries(_QUERIES, _QUERY_TOKENS, _DIM)
    # The paper's scores do not depend on which documents came first.
    options: dict[str, Any] = {"k": _DIRECTIONS, "preset": "paper", "show_progress": False}
    with tempfile.TemporaryDirectory() as folder:
        with EigenLIIndex(folder, "all", **options) as everything:
            everything.add_documents(range(documents), vectors)
            reference = [
                {int(hit["id"]): float(hit["score"]) for hit in hits}
                for hits in everything(queries, k=documents)
            ]
        initial = range(0, documents, 2)
        with EigenLIIndex(folder, "served", **options) as served:
            served.add_documents(initial, vectors[::2])
            first = _Change(served.generation, list(initial), True)
        log = _Log()
        with serving(Path(folder) / "served") as url:
            begin = time.perf_counter()
            asyncio.run(_load(url, seconds, clients, vectors.tolist(), queries.tolist(), log))
            took = time.perf_counter() - begin
    for error in sorted(set(log.errors))[:10]:
        print(f"error: {error}", file=sys.stderr)
    return Report(
        seconds=took,
        clients=clients,
        answers=len(log.found),
        changes=len(log.changes),
        errors=len(log.errors),
        inconsistent=_inconsistent(log.found, [first, *log.changes], reference),
        states_seen=len({found.generation for found in log.found}),
        median_ms=float(np.median(log.latencies)) * 1e3 if log.latencies else 0.0,
        p95_ms=float(np.quantile(log.latencies, 0.95)) * 1e3 if log.latencies else 0.0,
    )


async def _load(
    url: str, seconds: float, clients: int, vectors: Any, queries: Any, log: _Log
) -> None:
    try:
        import httpx
    except ImportError as error:
        raise ImportError("the load test needs `pip install httpx`") from error

    writers = max(1, round(_WRITERS_SHARE * clients))
    end = time.perf_counter() + seconds
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
        await asyncio.gather(
            *(_change(client, end, n, writers, vectors, log) for n in range(writers)),
            *(_search(client, end, n, queries, log) for n in range(clients - writers)),
        )


async def _search(
    client: httpx.AsyncClient, end: float, seed: int, queries: Any, log: _Log
) -> None:
    random = np.random.default_rng(seed)
    while time.perf_counter() < end:
        number = int(random.integers(len(queries)))
        body = {"queries_embeddings": [queries[number]], "top": _RESULTS}
        begin = time.perf_counter()
        answer = await _call(client, "POST", "/search", body, log)
        if answer is not None:
            log.latencies.append(time.perf_counter() - begin)
            hits = [(hit["id"], hit["score"]) for hit in answer["results"][0]["hits"]]
            log.found.append(_Found(number, answer["generation"], hits))


async def _change(
    client: httpx.AsyncClient, end: float, number: int, writers: int, vectors: Any, log: _Log
) -> None:
    """Add and remove documents that no other client touches."""
    random = np.random.default_rng(1000 + number)
    own = range(number, len(vectors), writers)
    present = {document for document in own if document % 2 == 0}
    while time.perf_counter() < end:
        chosen = random.choice(own, size=min(len(own), 5), replace=False).tolist()
        coming = [document for document in chosen if document not in present]
        going = [document for document in chosen if document in present]
        add = {"documents": [{"id": i, "embeddings": vectors[i]} for i in coming]}
        for method, ids, body in (("POST", coming, add), ("DELETE", going, {"ids": going})):
            if ids:
                answer = await _call(client, method, "/documents", body, log)
                if answer is not None:
                    log.changes.append(_Change(answer["generation"], ids, method == "POST"))
        present = present.union(coming).difference(going)


async def _call(
    client: httpx.AsyncClient, method: str, path: str, body: Any, log: _Log
) -> dict[str, Any] | None:
    import httpx

    try:
        response = await client.request(method, path, json=body)
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer
    except httpx.HTTPError as error:
        log.errors.append(f"{method} {path}: {error!r}")
        return None


def _inconsistent(
    found: Sequence[_Found],
    changes: Sequence[_Change],
    reference: Sequence[dict[int, float]],
) -> int:
    """Count the answers that are not those of the state they name."""
    wrong = 0
    present: set[int] = set()
    waiting = sorted(changes, key=lambda change: change.generation)
    for answer in sorted(found, key=lambda answer: answer.generation):
        while waiting and waiting[0].generation <= answer.generation:
            change = waiting.pop(0)
            present = (
                present.union(change.ids) if change.present else present.difference(change.ids)
            )
        scores = reference[answer.query]
        best = sorted(present, key=lambda document: (-scores[document], document))[:_RESULTS]
        expected = [(document, scores[document]) for document in best]
        if answer.hits != expected:
            wrong += 1
            if wrong <= 3:
                print(f"inconsistent: {answer}, expected {expected}", file=sys.stderr)
    return wrong


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run, print the report; return 0 if all went well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--documents", type=int, default=500)
    options = parser.parse_args(arguments)
    report = run(options.seconds, options.clients, options.documents)
    print(json.dumps(asdict(report), indent=2))
    return 0 if report.answers and not report.errors and not report.inconsistent else 1


if __name__ == "__main__":
    sys.exit(main())
