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


def encode(model: Any, batches: Any, is_query: bool, options: dict[str, Any]) -> Any:
    """Return the vectors that an encoder of mteb has for each item of :func:`batches`.

    The encoder gets the options that it takes. mteb's late-interaction models hide their ``encode``,
    so that mteb uses their own ``search``.
    """
    encode = getattr(model, "encode", None) or model._encode
    options = {**options, "prompt_type": prompt_type(is_query)}
    parameters = inspect.signature(encode).parameters
    if all(parameter.kind != parameter.VAR_KEYWORD for parameter in parameters.values()):
        options = {name: value for name, value in options.items() if name in parameters}
    return encode(batches, **options)


def modalities(task_metadata: Any, *, is_query: bool) -> list[str]:
    """Return what the queries or documents of a task consist of: "text", "image" or both."""
    return list(task_metadata.get_modalities(prompt_type(is_query)))


def convert(task: Any) -> None:
    """Bring a loaded task to mteb's second dataset layout."""
    task.convert_v1_dataset_format_to_v2(None)
