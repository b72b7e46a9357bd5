"""Retrieval tasks of mteb as collections."""

from __future__ import annotations

from typing import Any

from .beir import Collection


def load(task: Any) -> list[Collection]:
    """Return the collections of a retrieval task: one for each subset and split it evaluates on.

    Parameters
    ----------
    task
        Its name, or an ``mteb.AbsTaskRetrieval``. It must be about text and search a whole corpus.
    """
    try:
        import mteb
        from mteb._create_dataloaders import create_dataloader
        from mteb.types import PromptType
    except ImportError as error:
        raise ImportError('mteb tasks need `pip install "pylate-eigenli[mteb]"`') from error

    if isinstance(task, str):
        task = mteb.get_task(task)
    metadata = task.metadata
    if metadata.type != "Retrieval" or metadata.modalities != ["text"]:
        raise ValueError(
            f"{metadata.name} is not a text retrieval task: run it by "
            "mteb.evaluate(pylate_eigenli.evaluation.mteb_search.CompressedSearch(...), task)"
        )
    task.load_data()
    task.convert_v1_dataset_format_to_v2(None)

    def texts(rows: Any, prompt_type: Any) -> dict[str, str]:
        batches = create_dataloader(rows, task_metadata=metadata, prompt_type=prompt_type)
        found = [text for batch in batches for text in batch["text"]]
        return dict(zip(rows["id"], found, strict=True))

    collections = []
    for subset in task.hf_subsets:
        for split in task.eval_splits:
            data = task.dataset[subset][split]
            varying = [
                part
                for part, all_of_them in ((subset, task.hf_subsets), (split, task.eval_splits))
                if len(all_of_them) > 1
            ]
            queries = texts(data["queries"], PromptType.query)
            qrels = data["relevant_docs"]
            collections.append(
                Collection(
                    name="-".join([metadata.name, *varying]),
                    corpus=texts(data["corpus"], PromptType.document),
                    queries={query: text for query, text in queries.items() if query in qrels},
                    qrels=qrels,
                    ignore_identical_ids=task.ignore_identical_ids,
                )
            )
    return collections
