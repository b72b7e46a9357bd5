"""The demo from end to end: read, encode, index, answer, compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ..indexes.eigenli import EigenLIIndex
from ..models.default import demo_model
from ..models.encoder import Advance
from ..models.standard_library import sample, standard_library_documents
from ..models.text_encoder import encode, load_model
from ..spectral.subspace import check_k
from .comparison import Measurement, compare
from .known_items import known_items

KNOWN_ITEMS = 300
HITS = 3
INDEX_NAME = "standard-library"

Stage = Callable[[str, int | None], AbstractContextManager[Advance]]
"""Opens a stage of the work, given its description and number of steps, if they are known."""


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
class Experiment:
    """All that the demo finds out."""

    documents: int
    tokens_per_document: float
    encoding_seconds: float
    indexing_seconds: float
    answers: list[Answer]
    known_items: int
    comparison: list[Measurement]


@contextmanager
def silent(description: str, steps: int | None) -> Iterator[Advance]:
    """A stage that nobody watches."""
    yield lambda _: None


def run(
    questions: Sequence[str],
    *,
    documents: int = 2000,
    k: int = 32,
    model: str | None = None,
    index_folder: Path | None = None,
    stage: Stage = silent,
) -> Experiment:
    """Search the standard library with EigenLI, and compare it with exhaustive MaxSim.

    Parameters
    ----------
    questions
        What to ask the index of whole docstrings.
    documents
        Number of docstrings, at most.
    k
        Directions EigenLI keeps of a document.
    model
        Name or path of a PyLate model; by default the one fitted to the standard library.
    index_folder
        Where to keep the index of whole docstrings; by default it is discarded.
    stage
        Opened around each stage of the work, to show progress.

    """
    with stage("Reading the standard library", None):
        library = standard_library_documents()
        corpus = sample(library, documents)
        items = known_items(corpus, KNOWN_ITEMS)
    if not items:
        raise ValueError(f"no docstring among {len(corpus)} is long enough to be a known item")

    with stage("Loading the model", None) as advance:
        encoder = demo_model(library, advance=advance) if model is None else load_model(model)
    # Queries first: a k that does not fit the model should not wait for the documents.
    queries = encode(encoder, [*questions, *(item.query for item in items)], is_query=True)
    check_k(k, queries[0].shape[1])
    texts = [document.text for document in corpus]
    held_out = [item.document.text for item in items]
    start = time.perf_counter()
    with stage("Encoding documents", len(texts) + len(held_out)) as advance:
        embeddings = encode(encoder, texts + held_out, advance=advance)
    encoding_seconds = time.perf_counter() - start
    whole, rests = embeddings[: len(corpus)], embeddings[len(corpus) :]
    ids = [document.id for document in corpus]

    with TemporaryDirectory() as scratch:
        start = time.perf_counter()
        with (
            stage("Indexing with EigenLI", None),
            EigenLIIndex(
                index_folder=str(index_folder or scratch),
                index_name=INDEX_NAME,
                override=True,
                k=k,
                show_progress=False,
            ) as index,
        ):
            index.add_documents(documents_ids=ids, documents_embeddings=whole)
            indexing_seconds = time.perf_counter() - start
            found = index(queries[: len(questions)], k=HITS) if questions else []
        summaries = {document.id: document.summary for document in corpus}
        answers = [
            Answer(
                question,
                [Hit(id := str(hit["id"]), hit["score"], summaries[id]) for hit in hits],
            )
            for question, hits in zip(questions, found, strict=True)
        ]

        without_query = dict(zip(ids, whole, strict=True)) | {
            item.document.id: rest for item, rest in zip(items, rests, strict=True)
        }
        with stage("Searching for known items", 2 * len(items)) as advance:
            comparison = compare(
                ids,
                [without_query[id] for id in ids],
                queries[len(questions) :],
                [item.document.id for item in items],
                index_folder=Path(scratch),
                k=k,
                advance=advance,
            )
    return Experiment(
        documents=len(corpus),
        tokens_per_document=sum(map(len, whole)) / len(whole),
        encoding_seconds=encoding_seconds,
        indexing_seconds=indexing_seconds,
        answers=answers,
        known_items=len(items),
        comparison=comparison,
    )
