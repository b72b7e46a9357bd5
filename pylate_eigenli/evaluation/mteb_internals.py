"""The parts of mteb that are not its public interface. A new version of mteb may change them.

Nothing else in this package imports from a private module of mteb or calls a private method.
"""

from __future__ import annotations

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


def encode_of(model: Any) -> Any:
    """Return the ``encode`` of an encoder of mteb.

    mteb's PyLate models hide theirs, so that mteb itself searches with PLAID.
    """
    return getattr(model, "encode", None) or model._encode


def convert(task: Any) -> None:
    """Bring a loaded task to mteb's second dataset layout."""
    task.convert_v1_dataset_format_to_v2(None)
