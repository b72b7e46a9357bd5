"""Loaders of multi-vector vision models, chosen by the configuration of a checkpoint.

There are three kinds of checkpoints: for transformers' own retrieval classes, for colpali-engine
(whole models, or LoRA adapters of a base model), and with their own code. The ``model_type`` of
``config.json`` tells which classes read a checkpoint.

TomoroAI's ColQwen3 (``model_type`` "colqwen3") has its own code, written for transformers 4. It is
colpali-engine's ColQwen3 with other names of the weights, and this module loads it as such.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import check_positive, require

VISION = ("vision", "reading pages and images")
"""The extra with the libraries, and the purpose that errors name."""
_ENGINE = "colpali_engine.models"


@dataclass(frozen=True)
class Family:
    """The classes that read a kind of checkpoint, and what the checkpoint lacks.

    ``renamed`` maps patterns of the names of weights to the names that the class uses.
    """

    library: str
    model: str
    processor: str
    query_prefix: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    max_visual_tokens: int | None = None


# By model_type. The models were trained with these query prefixes, and MTEB uses them too.
FAMILIES = {
    "colpali": Family("transformers", "ColPaliForRetrieval", "ColPaliProcessor"),
    "colqwen2": Family("transformers", "ColQwen2ForRetrieval", "ColQwen2Processor"),
    "colmodernvbert": Family(
        "transformers", "ColModernVBertForRetrieval", "ColModernVBertProcessor"
    ),
    "paligemma": Family(_ENGINE, "ColPali", "ColPaliProcessor", "Query: "),
    "qwen2_vl": Family(_ENGINE, "ColQwen2", "ColQwen2Processor", "Query: "),
    "qwen2_5_vl": Family(_ENGINE, "ColQwen2_5", "ColQwen2_5_Processor", "Query: "),
    "qwen3_vl": Family(_ENGINE, "ColQwen3", "ColQwen3Processor"),
    "qwen3_5": Family(_ENGINE, "ColQwen3_5", "ColQwen3_5Processor"),
    "idefics3": Family(_ENGINE, "ColIdefics3", "ColIdefics3Processor"),
    "modernvbert": Family(_ENGINE, "ColModernVBert", "ColModernVBertProcessor"),
    "colqwen3": Family(
        _ENGINE,
        "ColQwen3",
        "ColQwen3Processor",
        renamed={r"^vlm\.model\.": "", r"^embedding_proj_layer": "custom_text_proj"},
        max_visual_tokens=1280,
    ),
}


def load(
    name: str,
    *,
    revision: str | None,
    dtype: Any,
    device_map: Any,
    attn_implementation: str | None,
    max_visual_tokens: int | None,
    trust_remote_code: bool,
) -> tuple[Any, Any]:
    """Return the model and the processor of a checkpoint; options are those of VisionColBERT."""
    for library in ("PIL", "torchvision"):
        require(library, *VISION)
    from transformers import PreTrainedConfig

    base = _base_of_adapter(name, revision)
    config, _ = PreTrainedConfig.get_config_dict(base or name, revision=None if base else revision)
    options = {
        "dtype": dtype,
        "device_map": device_map,
        "attn_implementation": attn_implementation,
        "revision": None if base else revision,
        "output_loading_info": True,
    }
    kind = config.get("model_type")
    if kind in FAMILIES:
        family = FAMILIES[kind]
        model, report = _load_model(family, base or name, config, options)
        processor = _load_processor(family, name, revision, max_visual_tokens)
    elif "AutoModel" in config.get("auto_map", {}):
        if not trust_remote_code:
            raise ValueError(
                f"{name} has its own code; pass trust_remote_code=True to run it, if you trust "
                "its authors"
            )
        from transformers import AutoModel, AutoProcessor

        model, report = AutoModel.from_pretrained(base or name, trust_remote_code=True, **options)
        limits = {} if max_visual_tokens is None else {"max_num_visual_tokens": max_visual_tokens}
        processor = AutoProcessor.from_pretrained(  # type: ignore[no-untyped-call]
            name, revision=revision, trust_remote_code=True, **limits
        )
    else:
        raise ValueError(
            f"{name} is a model of type {kind!r}; known are {', '.join(sorted(FAMILIES))}"
        )
    if base:
        model = _with_adapter(model, name, revision)
    elif report["missing_keys"]:
        raise ValueError(
            f"{name} is not a multi-vector model: it has no {min(report['missing_keys'])}"
        )
    return model.eval(), processor


def _base_of_adapter(name: str, revision: str | None) -> str | None:
    """Return the base model of a LoRA adapter; None for a whole model."""
    from transformers.utils.peft_utils import find_adapter_config_file

    file = find_adapter_config_file(name, revision=revision)
    if file is None:
        return None
    return str(json.loads(Path(file).read_text(encoding="utf-8"))["base_model_name_or_path"])


def _with_adapter(model: Any, name: str, revision: str | None) -> Any:
    """Return the model with an adapter in it.

    PEFT loads it, because transformers 5.3 skips weights of adapters with unknown names and only
    logs that.
    """
    peft = require("peft", *VISION)
    config = peft.PeftConfig.from_pretrained(name, revision=revision)
    adapted = peft.PeftModel(model, config, autocast_adapter_dtype=False)
    result = adapted.load_adapter(
        name,
        "default",
        revision=revision,
        autocast_adapter_dtype=False,
        # For adapters that were made before transformers renamed its modules.
        key_mapping=getattr(model, "_checkpoint_conversion_mapping", None),
    )
    wrong = [*result.missing_keys, *result.unexpected_keys]
    if wrong:
        raise ValueError(f"{name} does not fit its base model: {wrong[0]}")
    return adapted.get_base_model()


def _load_model(
    family: Family, name: str, config: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Return the model and transformers' report on the checkpoint."""
    model_class = getattr(require(family.library, *VISION), family.model)
    if family.renamed:
        fields = {key: config[key] for key in config if key not in ("model_type", "auto_map")}
        renaming = {
            "key_mapping": dict(family.renamed),
            "config": model_class.config_class.from_dict(fields),
        }
        options = {**options, **renaming}
    model, report = model_class.from_pretrained(name, **options)
    return model, report


def _load_processor(
    family: Family, name: str, revision: str | None, max_visual_tokens: int | None
) -> Any:
    processor_class = getattr(require(family.library, *VISION), family.processor)
    processor = processor_class.from_pretrained(name, revision=revision)
    if family.query_prefix is not None:
        processor.query_prefix = family.query_prefix
    limit = max_visual_tokens or family.max_visual_tokens
    if limit is not None:
        _limit_visual_tokens(processor.image_processor, limit, name)
    return processor


def _limit_visual_tokens(image_processor: Any, limit: int, name: str) -> None:
    """Scale images down to at most ``limit`` tokens."""
    check_positive(max_visual_tokens=limit)
    size = dict(image_processor.size)
    if not hasattr(image_processor, "merge_size") or "longest_edge" not in size:
        raise ValueError(f"{name} has no limit on visual tokens: leave max_visual_tokens out")
    # Qwen's processors call numbers of pixels edges.
    largest = limit * (image_processor.patch_size * image_processor.merge_size) ** 2
    smallest = min(size["shortest_edge"], largest)
    image_processor.size = {"shortest_edge": smallest, "longest_edge": largest}
    image_processor.min_pixels, image_processor.max_pixels = smallest, largest
