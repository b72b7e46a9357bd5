"""Uploads: batches sized by bytes, in parallel, repeated after temporary failures."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm
from typing_extensions import Self

from ...errors import UploadError
from ...scores.maxsim import row_ranges
from ...storage import DocumentId
from ...tokens import offsets_of
from . import VectorDatabase

# Qdrant refuses messages of more than 32 MB, Milvus of more than 64 MB.
BATCH_BYTES = 16 << 20
MESSAGE_BYTES = 32 << 20
_OVERHEAD = 256  # of a document: its key, its id and the names of its fields
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0


class Upload(NamedTuple):
    """Documents to send: ids, vectors (n, D) float32 and, if kept, bytes for re-ranking."""

    ids: list[DocumentId]
    vectors: NDArray[np.float32]
    rows: list[bytes] | None


def batches(documents: Upload, bytes_per_number: int) -> Iterator[Upload]:
    """Divide documents into batches of at most ``BATCH_BYTES``, but of at least one document."""
    ids, vectors, rows = documents
    costs = np.full(len(ids), _OVERHEAD + bytes_per_number * vectors.shape[1])
    if rows is not None:
        costs += [4 * -(-len(row) // 3) for row in rows]  # as base64
    largest = int(np.argmax(costs)) if len(ids) else 0
    if len(ids) and costs[largest] > MESSAGE_BYTES:
        raise ValueError(
            f"document {ids[largest]!r} takes {costs[largest] >> 20} MB, but one message to "
            f"a database holds at most {MESSAGE_BYTES >> 20} MB"
        )
    for begin, end in row_ranges(offsets_of(costs), BATCH_BYTES):
        yield Upload(ids[begin:end], vectors[begin:end], None if rows is None else rows[begin:end])


class Uploader:
    """Sends documents to a database; leaving the ``with`` block waits until all have arrived.

    At most one batch per worker is in flight, so memory does not grow with the upload. Progress
    counts the documents that the database has confirmed.
    """

    def __init__(self, database: VectorDatabase, progress: tqdm[NoReturn]) -> None:
        self._database = database
        self._progress = progress
        self._workers = 1 if database.embedded else database.options.workers
        self._pool = ThreadPoolExecutor(self._workers)
        self._sent: deque[Future[int]] = deque()
        self._stopping = threading.Event()  # set when a batch has failed: the others stop waiting

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, exception: object, _traceback: object) -> None:
        try:
            while exception is None and self._sent:
                self._confirm()
        finally:
            self._stopping.set()
            self._pool.shutdown(cancel_futures=True)

    def put(self, documents: Upload) -> None:
        """Send documents; return when at most one batch per worker is in flight."""
        for batch in batches(documents, self._database.bytes_per_number):
            if self._database.embedded:  # embedded databases must stay in one thread
                self._progress.update(self._send(batch))
                continue
            while len(self._sent) >= self._workers:
                self._confirm()
            self._sent.append(self._pool.submit(self._send, batch))

    def _confirm(self) -> None:
        self._progress.update(self._sent.popleft().result())

    def _send(self, batch: Upload) -> int:
        retries = self._database.options.retries
        for attempt in range(retries + 1):
            try:
                self._database.upsert(batch.ids, batch.vectors, batch.rows)
                break
            except Exception as error:
                if not self._database.is_transient(error) or self._stopping.is_set():
                    raise
                if attempt == retries:
                    raise UploadError(
                        f"{len(batch.ids)} documents from {batch.ids[0]!r} on could not be stored "
                        f"in {retries + 1} attempts ({error}); add the same documents again to "
                        "complete the upload"
                    ) from error
                self._stopping.wait(back_off(attempt))
        return len(batch.ids)


def back_off(attempt: int) -> float:
    """Return the seconds to wait after a failed attempt, counted from 0.

    The delay doubles with each attempt. It is random, so that workers do not retry together.
    """
    return min(_FIRST_DELAY * 2.0**attempt, _LONGEST_DELAY) * random.uniform(0.5, 1.0)


def verify(database: VectorDatabase, ids: Sequence[DocumentId]) -> None:
    """Raise an error if the database does not hold all documents of an upload."""
    if missing := database.missing(ids):
        raise UploadError(
            f"{len(missing)} of {len(ids)} documents did not arrive, the database holds "
            f"{database.count()}; add these again: {listed(missing)}"
        )


def listed(ids: Sequence[DocumentId]) -> str:
    """Return the first few ids for an error."""
    return ", ".join(map(repr, ids[:5])) + (", ..." if len(ids) > 5 else "")
