"""The parts of mteb that are not its public interface. A new version of mteb may change them.

They are ``mteb._create_dataloaders.create_dataloader``, which has no public counterpart, and
``_encode`` of the multi-vector encoders, which hide ``encode`` so that mteb searches with them.
Nothing else in this package imports from a private module of mteb or calls a private method.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import require


def batches(
    dataset: Any,
    task_metadata: Any,
    *,
    is_query: bool,
    batch_size: int = 32,
    num_proc: int | None = None,
) -> Iterable[Mapping[str, Any]]:
    """Return mteb's own batches of the rows of a dataset: titles joined, images decoded."""
    require("mteb", "mteb", "reading a task of mteb")
    from mteb._create_dataloaders import create_dataloader

    loader: Iterable[Mapping[str, Any]] = create_dataloader(
        dataset,
        task_metadata=task_metadata,
        prompt_type=prompt_type(is_query),
        batch_size=batch_size,
        num_proc=num_proc,
    )
    return loader


def prompt_type(is_query: bool) -> Any:
    """Return what mteb calls queries and documents."""
    from mteb.types import PromptType

    return PromptType.query if is_query else PromptType.document


def prompt_of(prompts: Any, task_metadata: Any, *, is_query: bool) -> str | None:
    """Return the prompt that a model has for a task, if any."""
    from mteb.models.abs_encoder import get_prompt

    prompt: str | None = get_prompt(prompts, task_metadata, prompt_type(is_query))
    return prompt


class TaskModel:
    """An encoder of mteb for one task, as a :class:`pylate_eigenli.models.encoder.TokenModel`.

    mteb's late-interaction models hide their ``encode``, so that mteb searches with their own
    ``search``.

    Parameters
    ----------
    model
        An encoder of mteb that returns several vectors per text or image.
    context
        ``task_metadata``, ``hf_split`` and ``hf_subset`` of the task.
    """

    def __init__(self, model: Any, **context: Any) -> None:
        self._encode = getattr(model, "encode", None) or model._encode
        self._context = context

    def encode_queries(self, queries: Any, **options: Any) -> Any:
        """Encode the :func:`batches` of queries."""
        return self._encoded(queries, prompt_type=prompt_type(True), **options)

    def encode_documents(self, documents: Any, **options: Any) -> Any:
        """Encode the :func:`batches` of documents."""
        return self._encoded(documents, prompt_type=prompt_type(False), **options)

    def _encoded(self, inputs: Any, **options: Any) -> Any:
        """Encode batches with those of the options that the model has."""
        options |= self._context
        parameters = inspect.signature(self._encode).parameters
        if all(parameter.kind != parameter.VAR_KEYWORD for parameter in parameters.values()):
            options = {name: value for name, value in options.items() if name in parameters}
        return self._encode(inputs, **options)


def modalities(task_metadata: Any, *, is_query: bool) -> list[str]:
    """Return what the queries or documents of a task consist of: "text", "image" or both."""
    return list(task_metadata.get_modalities(prompt_type(is_query)))


def convert(task: Any) -> None:
    """Bring a loaded task to mteb's second dataset layout."""
    task.convert_v1_dataset_format_to_v2(None)
