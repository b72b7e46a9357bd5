"""Forged indexes: files whose checksums are right, and whose contents no writer would make.

    cd examples && python -m benchmarks.forgeries

Each array of each kind of index, each field of its manifest and the tables and rows of its catalogue
are forged in many ways, one at a time. The index is then opened, searched, changed and verified in a
process of its own, by somebody who has not made it. Whoever opens such a folder must get an
``IndexFormatError``, or an error that names the folder, or an index that works: never a crash, a raw
error of a library, or an exhausted memory. The exit code is 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from pylate_eigenli import (
    EigenLIIndex,
    EigenLISVIndex,
    IndexFormatError,
    SVProjection,
    TextIndex,
    TokenProjection,
    UnknownDocumentError,
    open_index,
)
from pylate_eigenli.corpus.catalogue_file import FILE_NAME as CATALOGUE
from pylate_eigenli.corpus.committing import verify
from pylate_eigenli.corpus.document import Document
from pylate_eigenli.corpus.page_index import PageIndex, open_corpus
from pylate_eigenli.storage.columns import ColumnFile, write_columns
from pylate_eigenli.storage.manifest import FILE_NAME, Manifest, checksum

_DIM = 8
_MEMORY = 3 << 30  # that a process may take more than it has
_SECONDS = 60
_FAILED = 3


def tokens(seed: int, n: int = 6) -> np.ndarray:
    """Return the tokens of a document."""
    return np.random.default_rng(seed).standard_normal((n, _DIM)).astype(np.float32)


def _vectors(index_type: Any, **options: Any) -> Callable[[Path], None]:
    """Return what makes an index with two segments, tombstones and arrays of the collection."""

    def make(folder: Path) -> None:
        with index_type(
            str(folder.parent), folder.name, k=3, show_progress=False, **options
        ) as index:
            index.add_documents(range(40), [tokens(i) for i in range(40)])
            index.add_documents([f"d{i}" for i in range(5)], [tokens(i) for i in range(5)])
            index.remove_documents([3])
            if options.get("standardise"):
                index.fit_queries([tokens(0), tokens(1)])
            if "backend" in options:
                index.build()

    return make


def _texts(folder: Path) -> None:
    with TextIndex(folder, k=3) as index:
        documents = [Document(i, f"text {i}", metadata={"year": i}) for i in range(20)]
        index.add_documents(documents, [tokens(i) for i in range(20)])
        index.remove([3])


def _pages(folder: Path) -> None:
    with PageIndex(folder, k=3) as index:
        documents = [
            Document(f"a.pdf#{i}", title="a", file="a.pdf", page=i, fingerprint="1")
            for i in range(1, 20)
        ]
        index.add_documents(documents, [tokens(i) for i in range(1, 20)])
        index.catalogue.put([], index.index.generation + 1, {"folder": "/nowhere"})
        index.remove(["a.pdf#3"])


_IDF = {"idf": 0.5, "background": 0.5}
KINDS: dict[str, Callable[[Path], None]] = {
    "eigenli": _vectors(EigenLIIndex),
    "eigenli int8": _vectors(EigenLIIndex, dtype="int8", filter="ridge", **_IDF),
    "eigenli standardised": _vectors(EigenLIIndex, standardise=True, background=1.0),
    "single vectors": _vectors(EigenLISVIndex, keep_tokens="int8"),
    "binary": _vectors(EigenLISVIndex, dtype="binary", keep_bases=True, **_IDF),
    "standardised": _vectors(EigenLISVIndex, standardise=True, dtype="float16"),
    "projected": _vectors(
        EigenLISVIndex,
        dtype="int4",
        preset="paper",  # the projection is for vectors that are not standardised
        token_projection=TokenProjection(torch.eye(_DIM)[:6], 0.75),
        projection=SVProjection(torch.arange(21) / 42, torch.eye(21)[3:15], 0.5),
    ),
    "voyager": _vectors(EigenLISVIndex, backend="voyager"),
    "faiss": _vectors(EigenLISVIndex, backend="faiss"),
    "sketch": _vectors(EigenLISVIndex, backend="sketch"),
    "texts": _texts,
    "pages": _pages,
}

# --- forging ------------------------------------------------------------------------------------

_HUGE = (2**31, 2**53, 2**63, 10**30)
_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 3, *_HUGE, 0.5, -1e308, "", "x", "\ud800", [], [1], {}, {"x": 1}),
    [[]] * 3,
    "segment-000099.safetensors",
    "../../etc/passwd",
)


def _with(array: np.ndarray, *values: Any) -> np.ndarray:
    """Return the array with its first entries replaced."""
    forged = array.copy().reshape(-1)
    with np.errstate(all="ignore"):
        for position, value in zip(range(len(forged)), values, strict=False):
            forged[position] = np.array(value).astype(array.dtype)
    return forged.reshape(array.shape)


def _noise(array: np.ndarray) -> np.ndarray:
    """Return an array of the same type with random bits."""
    noise = np.frombuffer(np.random.default_rng(1).bytes(array.nbytes), np.uint8)
    return (noise & 1 if array.dtype == bool else noise).view(array.dtype).reshape(array.shape)


ARRAYS: dict[str, Callable[[np.ndarray], np.ndarray | None]] = {
    "missing": lambda a: None,
    "empty": lambda a: a[:0],
    "shorter": lambda a: a[:-1],
    "longer": lambda a: np.concatenate([a, a[-1:]]),
    "much longer": lambda a: np.concatenate([a] * 50),
    "of no width": lambda a: a.reshape(len(a), -1)[:, :0],
    "flat": lambda a: a.reshape(-1),
    "of one more axis": lambda a: a[..., None],
    "wider": lambda a: np.repeat(a, 2, axis=-1),
    "a number": lambda a: a.reshape(-1)[:1].reshape(()) if a.size else a.sum(),
    "float64": lambda a: a.astype(np.float64),
    "float16": lambda a: a.astype(np.float16),
    "int64": lambda a: a.astype(np.int64),
    "int8": lambda a: a.astype(np.int8),
    "uint64": lambda a: a.astype(np.uint64),
    "bool": lambda a: a.astype(bool),
    "nan": lambda a: _with(a, np.nan),
    "all nan": lambda a: _with(a, *[np.nan] * a.size),
    "infinite": lambda a: _with(a, np.inf, -np.inf),
    "negative": lambda a: _with(a, -1),
    "all negative": lambda a: -a if a.dtype != bool else ~a,
    "zero": lambda a: a * a.dtype.type(0),
    "huge": lambda a: _with(a, 2**62, 1e300),
    "shuffled": lambda a: np.random.default_rng(0).permutation(a),
    "of other bits": _noise,
}


_COLUMNS = {
    "texts": ("id", "since", "title", "text", "checksum", "gone", "file", "page", "fingerprint"),
    "metadata": ("id", "since", "key", "value"),
    "about": ("name", "value"),
}
_SQL_VALUES = (
    *("NULL", "-1", "9223372036854775807", "1e999", "''", "'x'", "x'00ff'", "'[[1]]'", "'1.5'"),
    *("CAST(x'ff' AS TEXT)", "'../../etc/passwd'", "zeroblob(1000)"),
)
STATEMENTS: tuple[str, ...] = (
    *(f"UPDATE {table} SET {column} = {value} WHERE rowid = 1" if table != "metadata" else
      f"UPDATE {table} SET {column} = {value} WHERE id = '1'"
      for table, columns in _COLUMNS.items() for column in columns for value in _SQL_VALUES),
    *(f"ALTER TABLE {table} RENAME COLUMN {column} TO other"
      for table, columns in _COLUMNS.items() for column in columns),
    *(f"{what} {table}" for table in _COLUMNS
      for what in ("DROP TABLE", "DELETE FROM", "ALTER TABLE other RENAME TO")),
    *(f"ALTER TABLE {table} ADD COLUMN other" for table in _COLUMNS),
    *(f"PRAGMA user_version = {version}" for version in (-1, 0, 1, 3, 5, 99)),
    "UPDATE texts SET since = since + 1000",
    "CREATE TRIGGER other AFTER INSERT ON texts BEGIN DELETE FROM texts; END",
    "ALTER TABLE about RENAME TO was; CREATE VIEW about AS WITH RECURSIVE n(i) AS (SELECT 1 UNION "
    "ALL SELECT i + 1 FROM n) SELECT i AS name, i AS value FROM n",
    "CREATE VIEW other AS SELECT * FROM texts",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') "
    "WHERE name = 'texts'",
    "PRAGMA writable_schema = ON; DELETE FROM sqlite_master WHERE name = 'files'",
)  # fmt: skip


@dataclass(frozen=True)
class Forgery:
    """One change of one index."""

    kind: str
    place: tuple[Any, ...]
    how: str
    forge: Callable[[Path], None]

    def __str__(self) -> str:
        return f"{self.kind}: {'.'.join(map(str, self.place))} {self.how}"


def forgeries(kind: str, folder: Path) -> Iterator[Forgery]:
    """Yield all forgeries of an index."""
    manifest = Manifest.read(folder)
    body = json.loads((folder / FILE_NAME).read_bytes())
    for place in _places(body):
        for value in _VALUES:
            yield Forgery(kind, place, f"= {value!r:.40}", _in_manifest(place, value))
        yield Forgery(kind, place, "is missing", _in_manifest(place, None, delete=True))
    for record in manifest.files():
        for name in ColumnFile(folder, record).names:
            for how, change in ARRAYS.items():
                place = (record.file, name)
                yield Forgery(kind, place, how, _in_array(record.file, name, change))
    if (folder / CATALOGUE).exists():
        for statement in STATEMENTS:
            yield Forgery(kind, (CATALOGUE,), statement, _in_catalogue(statement))


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in JSON."""
    if place and place != ("checksum",):
        yield place
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in list(entries)[:20]:
            yield from _places(inner, (*place, key))


def _in_manifest(
    place: tuple[Any, ...], value: Any, delete: bool = False
) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        body = json.loads((folder / FILE_NAME).read_bytes())
        parent = body
        for key in place[:-1]:
            parent = parent[key]
        if delete:
            del parent[place[-1]]
        else:
            parent[place[-1]] = value
        body.pop("checksum", None)
        (folder / FILE_NAME).write_text(json.dumps({**body, "checksum": checksum(body)}))

    return forge


def _in_array(
    file: str, name: str, change: Callable[[np.ndarray], np.ndarray | None]
) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        manifest = Manifest.read(folder)
        record = next(r for r in manifest.files() if r.file == file)
        old = ColumnFile(folder, record)
        arrays = {n: np.array(old.read(n)) for n in old.names}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # casts
            forged = change(arrays.pop(name))
        if forged is not None:
            arrays[name] = np.ascontiguousarray(forged).reshape(np.shape(forged))
        new = write_columns(folder / file, arrays)
        # Of new length, the documents say so too, or nothing but the manifest would be tried.
        segments = tuple(
            replace(
                segment,
                data=new if segment.data == record else segment.data,
                dead=new if segment.dead == record else segment.dead,
            )
            for segment in manifest.segments
        )
        collection = new if manifest.collection == record else manifest.collection
        replace(manifest, segments=segments, collection=collection).write(folder)

    return forge


def _in_catalogue(statement: str) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        # Some change nothing, and some are refused.
        with suppress(sqlite3.Error), closing(sqlite3.connect(folder / CATALOGUE)) as connection:
            connection.executescript(f"PRAGMA ignore_check_constraints = ON; {statement}")

    return forge


# --- using --------------------------------------------------------------------------------------


def use(folder: Path) -> None:
    """Do with an index what can be done with it; raise the first error that nobody should see."""
    failed = [False]

    def tried(step: Callable[[], Any]) -> Any:
        try:
            return step()
        except UnknownDocumentError:
            failed[0] = True
        except (ValueError, IndexFormatError, FileNotFoundError) as error:
            is_named = str(folder) in str(error) or "metadata" in str(error)
            if not is_named or len(str(error).splitlines()) > 1:
                raise
            failed[0] = True
        return None

    queries = [tokens(0), tokens(1)]
    tried(lambda: verify(folder))
    if (folder / CATALOGUE).exists():
        corpus = tried(lambda: open_corpus(folder))
        if corpus is not None:
            for step in (
                lambda: json.dumps([corpus.catalogue.about, corpus.catalogue.files()]),
                lambda: json.dumps([asdict(found) for found in corpus.get([1])]),
                lambda: json.dumps([asdict(found) for found in corpus.get(["a.pdf#1"])]),
                lambda: [asdict(hit) for hit in corpus.answers(queries, explain=True)[0].hits],
                lambda: corpus.answers(queries, where={"year": {"gte": 0}}),
                lambda: corpus.of_file("a.pdf"),
                lambda: json.dumps(corpus.about()),
                lambda: corpus.remove([4]),
                lambda: corpus.remove(["a.pdf#4"]),
                lambda: corpus.add_documents([Document(99, "new")], [tokens(9)]),
                corpus.compact,
                corpus.close,
            ):
                tried(step)
    index = tried(lambda: open_index(folder))
    if index is None:
        return
    searches = (
        lambda: (len(index), index.dim, index.settings, index.calibration, index.nbytes),
        lambda: index.meta and index.generation,
        lambda: index(queries, k=3),
        lambda: index(queries * 4, k=100, subset=[0, 1, "d1"]),
        lambda: index(queries, k=100, idf=0.3, background=0.2),
        lambda: index.contributions(tokens(0), [1, "d1"]),
        lambda: index.highest_scores(queries),
        lambda: [len(ids) for ids, _ in index.vectors()],
        lambda: 1 in index and index.missing([0, "d1"]),
    )
    for step in searches:
        tried(step)
    for step in (
        lambda: index.get_documents_embeddings([[1, "d1"]]),
        lambda: index.bases([1, "d1"]),
    ):
        with suppress(ValueError):  # they may be kept or not
            tried(step)
    if isinstance(index, EigenLISVIndex):
        for rerank in ("basis", "maxsim"):
            with suppress(ValueError):
                tried(lambda rerank=rerank: index(queries, k=3, rerank=rerank))
    tried(lambda: index.fit_queries(queries) if index.settings.standardise else None)
    tried(lambda: index.remove_documents([5]))
    tried(lambda: index.add_documents([1, "new"], [tokens(7), tokens(8)]))
    tried(index.compact)
    if isinstance(index, EigenLISVIndex):
        tried(index.build)
    found = tried(lambda: index(queries, k=3))
    if found is not None and not failed[0]:
        verdict = verify(folder)
        assert not verdict, f"it works, but verify says {verdict[0]}"
    tried(index.close)


def outcome(folder: Path) -> str | None:
    """Use an index in a process of its own; return what was wrong, None if nothing was."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            (size,) = [
                int(line.split()[1]) << 10
                for line in Path("/proc/self/status").read_text().splitlines()
                if line.startswith("VmSize")
            ]
            resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY, size + _MEMORY))
            signal.alarm(_SECONDS)
            warnings.simplefilter("ignore")
            try:
                use(folder)
                os._exit(0)
            except BaseException as error:
                places = [
                    f"{Path(frame.filename).name}:{frame.lineno}"
                    for frame in traceback.extract_tb(error.__traceback__)
                    if "pylate_eigenli" in frame.filename
                ]
                line = f"{type(error).__name__}: {str(error)[:150]!r} at {' '.join(places[-3:])}"
                os.write(writing, line.encode(errors="replace"))
        os._exit(_FAILED)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as stream:
        told = stream.read().decode()
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return None if status == 0 else told


def run(kinds: list[str], share: float, seed: int, only: str = "") -> list[str]:
    """Forge a share of all that can be forged and is named so; return what went wrong, a line each."""
    torch.set_num_threads(1)  # a process with other threads cannot be forked
    chance = random.Random(seed)
    wrong, done = [], Counter[str]()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as work:
        for kind in kinds:
            intact = Path(work) / "intact" / kind.replace(" ", "-")
            intact.parent.mkdir(exist_ok=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                KINDS[kind](intact)
                warm = Path(work) / "warm"
                shutil.copytree(intact, warm)
                use(warm)  # compiles what all the children need
                shutil.rmtree(warm)
            chosen = [
                f for f in forgeries(kind, intact) if only in str(f) and chance.random() < share
            ]
            for forgery in tqdm(chosen, kind, disable=None, file=sys.stderr):
                victim = Path(work) / "victim"
                shutil.copytree(intact, victim)
                with suppress(ValueError, TypeError, UnicodeError):  # it cannot be written
                    forgery.forge(victim)
                    done[kind] += 1
                    problem = outcome(victim)
                    if problem is not None:
                        wrong.append(f"{forgery}: {problem}")
                shutil.rmtree(victim)
    print(json.dumps({"forgeries": dict(done), "wrong": wrong}, indent=1))
    return wrong


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run, print the report; return 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--share", type=float, default=1.0, help="of all forgeries, at random")
    parser.add_argument("--only", default="", help="forgeries whose names hold this text")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    return 1 if run(options.kinds, options.share, options.seed, options.only) else 0


if __name__ == "__main__":
    sys.exit(main())
