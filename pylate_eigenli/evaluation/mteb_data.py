"""Retrieval tasks of mteb as collections."""

from __future__ import annotations

from typing import Any

from ..errors import require
from . import mteb_internals
from .beir import Collection


def load(task: Any) -> list[Collection]:
    """Return the collections of a task, given or named: one for each subset and split it evaluates.

    The task must be about text and search a whole corpus.
    """
    mteb = require("mteb", "mteb", "reading a task of mteb")
    if isinstance(task, str):
        task = mteb.get_task(task)
    metadata = task.metadata
    if metadata.type != "Retrieval" or metadata.modalities != ["text"]:
        raise ValueError(
            f"{metadata.name} is not a text retrieval task: run it with "
            "mteb.evaluate(pylate_eigenli.evaluation.mteb_search.CompressedSearch(...), task)"
        )
    task.load_data()
    mteb_internals.convert(task)

    def texts(rows: Any, *, is_query: bool) -> dict[str, str]:
        batches = mteb_internals.batches(rows, metadata, is_query=is_query)
        found = [text for batch in batches for text in batch["text"]]
        return dict(zip(rows["id"], found, strict=True))

    collections = []
    for subset in task.hf_subsets:
        for split in task.eval_splits:
            data = task.dataset[subset][split]
            varying = [
                part
                for part, choices in ((subset, task.hf_subsets), (split, task.eval_splits))
                if len(choices) > 1
            ]
            queries = texts(data["queries"], is_query=True)
            qrels = data["relevant_docs"]
            collections.append(
                Collection(
                    name="-".join([metadata.name, *varying]),
                    corpus=texts(data["corpus"], is_query=False),
                    queries={query: text for query, text in queries.items() if query in qrels},
                    qrels=qrels,
                    ignore_identical_ids=task.ignore_identical_ids,
                )
            )
    return collections
