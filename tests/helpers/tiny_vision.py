"""Vision models of a few thousand random weights, saved as a hub's checkpoints are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import colpali_engine.models as engine
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

QWEN_TOKENS = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"),
    *("<|image_pad|>", "<|video_pad|>"),
]
PALI_TOKENS = ["<pad>", "<eos>", "<bos>", "<unk>", "<image>"]
VBERT_TOKENS = [
    *("<pad>", "<cls>", "<sep>", "<|begin_of_text|>", "<image>", "<fake_token_around_image>"),
    *("<end_of_utterance>", "<global-img>"),
    *(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)),
]
SMALL = {"hidden_size": 32, "intermediate_size": 48}
QWEN_VISION = {**SMALL, "depth": 2, "num_heads": 2, "out_hidden_size": 48}
SIGLIP = {**SMALL, "num_hidden_layers": 2, "num_attention_heads": 2}


def byte_tokenizer(special: list[str], **names: str) -> Any:
    """A tokenizer of single bytes and some special tokens, which come first."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, additional_special_tokens=special, **names
    )


def text_config(tokenizer: Any, **rope: object) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 24,
        "max_position_embeddings": 1024,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, **rope},
    }


def save(model: Any, processor: Any, folder: Path) -> None:
    """Save a model of colpali-engine.

    Not by save_pretrained: with transformers 5, colpali-engine 0.3.18 garbles names there.
    """
    folder.mkdir()
    weights = {name: x for name, x in model.state_dict().items() if "lm_head" not in name}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    processor.save_pretrained(folder)


# --- the Qwen family --------------------------------------------------------------------------


def qwen_parts(patch_size: int) -> tuple[Any, Any]:
    """A tokenizer and an image processor that makes at most 48 tokens of a page."""
    tile = (2 * patch_size) ** 2
    images = transformers.Qwen2VLImageProcessorFast(
        patch_size=patch_size, size={"shortest_edge": 4 * tile, "longest_edge": 48 * tile}
    )
    names = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    return byte_tokenizer(QWEN_TOKENS, **names), images


def qwen_ids() -> dict[str, int]:
    names = ("vision_start", "vision_end", "image_pad", "video_pad")
    return {
        f"{name.removesuffix('_pad')}_token_id": QWEN_TOKENS.index(f"<|{name}|>") for name in names
    }


def colqwen2(folder: Path) -> None:
    """As transformers has it."""
    tokenizer, images = qwen_parts(patch_size=14)
    vlm = transformers.Qwen2VLConfig(
        text_config=text_config(tokenizer, mrope_section=[4, 4, 4]),
        vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 48, "num_heads": 2},
        **qwen_ids(),
    )
    torch.manual_seed(0)
    model = transformers.ColQwen2ForRetrieval(transformers.ColQwen2Config(vlm_config=vlm))
    model.save_pretrained(folder)
    transformers.ColQwen2Processor(images, tokenizer).save_pretrained(folder)


def engine_colqwen2(folder: Path) -> None:
    """As colpali-engine has it, with the weights of the one above."""
    source = folder.with_name("colqwen2")
    vlm = json.loads((source / "config.json").read_text())["vlm_config"]
    model = engine.ColQwen2(transformers.Qwen2VLConfig(**vlm))
    weights = {
        name.removeprefix("vlm.model.").replace("embedding_proj_layer", "custom_text_proj"): weight
        for name, weight in load_file(source / "model.safetensors").items()
        if "lm_head" not in name
    }
    model.load_state_dict(weights)
    tokenizer, images = qwen_parts(patch_size=14)
    videos = transformers.Qwen2VLVideoProcessor()
    save(model, engine.ColQwen2Processor(images, tokenizer, videos), folder)


def colqwen2_5(folder: Path) -> None:
    tokenizer, images = qwen_parts(patch_size=14)
    config = transformers.Qwen2_5_VLConfig(
        text_config=text_config(tokenizer, mrope_section=[4, 4, 4]),
        vision_config={**QWEN_VISION, "fullatt_block_indexes": [1], "window_size": 56},
        **qwen_ids(),
    )
    torch.manual_seed(0)
    videos = transformers.Qwen2VLVideoProcessor()
    processor = engine.ColQwen2_5_Processor(images, tokenizer, videos)
    save(engine.ColQwen2_5(config), processor, folder)


def colqwen3(folder: Path) -> None:
    """A Qwen3-VL with a projection to 320 dimensions."""
    tokenizer, images = qwen_parts(patch_size=16)
    config = transformers.Qwen3VLConfig(
        text_config=text_config(tokenizer, mrope_section=[4, 4, 4], mrope_interleaved=True),
        vision_config={
            **QWEN_VISION,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0],
        },
        **qwen_ids(),
    )
    torch.manual_seed(0)
    videos = transformers.Qwen3VLVideoProcessor()
    save(engine.ColQwen3(config), engine.ColQwen3Processor(images, tokenizer, videos), folder)


def tomoro(folder: Path) -> None:
    """The one above in the layout of TomoroAI's checkpoints, which bring code of their own."""
    source = folder.with_name("colqwen3")
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((source / "config.json").read_text())
    config |= {
        "model_type": "colqwen3",
        "embed_dim": 320,
        "auto_map": {"AutoModel": "modeling_colqwen3.ColQwen3"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    weights = {
        name.replace("custom_text_proj", "embedding_proj_layer")
        if name.startswith("custom_text_proj")
        else f"vlm.model.{name}": weight
        for name, weight in load_file(source / "model.safetensors").items()
    }
    weights["vlm.lm_head.weight"] = torch.zeros(2, 2)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def colqwen3_5(folder: Path) -> None:
    tokenizer, images = qwen_parts(patch_size=16)
    rope = {"mrope_section": [4, 4, 4], "mrope_interleaved": True, "partial_rotary_factor": 1.0}
    text = text_config(tokenizer, **rope) | {
        "layer_types": ["linear_attention", "full_attention"],
        **{f"linear_{side}_head_dim": 8 for side in ("key", "value")},
        **{f"linear_num_{side}_heads": 2 for side in ("key", "value")},
    }
    vision = {**QWEN_VISION, "num_position_embeddings": 16}
    config = transformers.Qwen3_5Config(
        text_config=text, vision_config=vision, dim=320, **qwen_ids()
    )
    torch.manual_seed(0)
    videos = transformers.Qwen3VLVideoProcessor()
    save(engine.ColQwen3_5(config), engine.ColQwen3_5Processor(images, tokenizer, videos), folder)


# --- ColPali and ColModernVBERT ---------------------------------------------------------------


def pali_parts() -> tuple[Any, Any, Any]:
    """A tokenizer, an image processor that makes 9 tokens of every page, and a configuration."""
    names = {f"{name}_token": f"<{name}>" for name in ("pad", "eos", "bos", "unk")}
    tokenizer = byte_tokenizer(PALI_TOKENS, **names)
    images = transformers.SiglipImageProcessorFast(size={"height": 42, "width": 42})
    images.image_seq_length = 9
    # It adds tokens to the tokenizer.
    transformers.ColPaliProcessor(images, tokenizer)
    vision = {**SIGLIP, "image_size": 42, "patch_size": 14, "projection_dim": 48}
    config = transformers.PaliGemmaConfig(
        text_config={"model_type": "gemma", **text_config(tokenizer)},
        vision_config={"model_type": "siglip_vision_model", **vision},
        image_token_index=PALI_TOKENS.index("<image>"),
        projection_dim=48,
    )
    return tokenizer, images, config


def colpali(folder: Path) -> None:
    """As transformers has it."""
    tokenizer, images, vlm = pali_parts()
    torch.manual_seed(0)
    model = transformers.ColPaliForRetrieval(transformers.ColPaliConfig(vlm_config=vlm))
    model.save_pretrained(folder)
    transformers.ColPaliProcessor(images, tokenizer).save_pretrained(folder)


def engine_colpali(folder: Path) -> None:
    """As colpali-engine has it."""
    tokenizer, images, config = pali_parts()
    torch.manual_seed(0)
    save(engine.ColPali(config), engine.ColPaliProcessor(images, tokenizer), folder)


def vbert_parts() -> tuple[Any, Any, Any]:
    names = {f"{name}_token": f"<{name}>" for name in ("pad", "cls", "sep")}
    tokenizer = byte_tokenizer(VBERT_TOKENS, **names)
    images = transformers.Idefics3ImageProcessorFast(
        size={"longest_edge": 128}, max_image_size={"longest_edge": 64}
    )
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        **{f"{name}_token_id": i for i, name in enumerate(("pad", "cls", "sep"))},
        **{f"{name}_token_id": i for i, name in enumerate(("bos", "eos"), 1)},
    }
    config = transformers.ModernVBertConfig(
        text_config=text,
        vision_config={**SIGLIP, "image_size": 64, "patch_size": 16},
        image_token_id=VBERT_TOKENS.index("<image>"),
        pixel_shuffle_factor=2,
    )
    return tokenizer, images, config


def colmodernvbert(folder: Path) -> None:
    """As transformers has it."""
    tokenizer, images, vlm = vbert_parts()
    torch.manual_seed(0)
    config = transformers.ColModernVBertConfig(vlm_config=vlm)
    transformers.ColModernVBertForRetrieval(config).save_pretrained(folder)
    processor = transformers.ColModernVBertProcessor(images, tokenizer, image_seq_len=4)
    processor.save_pretrained(folder)


def engine_colmodernvbert(folder: Path) -> None:
    """As colpali-engine has it."""
    tokenizer, images, config = vbert_parts()
    torch.manual_seed(0)
    processor = engine.ColModernVBertProcessor(images, tokenizer, image_seq_len=4)
    save(engine.ColModernVBert(config), processor, folder)


def colsmol(folder: Path) -> None:
    """An Idefics3, which has the processor of ModernVBERT."""
    tokenizer, images, _ = vbert_parts()
    config = transformers.Idefics3Config(
        text_config={"model_type": "llama", "pad_token_id": 0, **text_config(tokenizer)},
        vision_config={**SIGLIP, "image_size": 64, "patch_size": 16},
        image_token_id=VBERT_TOKENS.index("<image>"),
        scale_factor=2,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    processor = engine.ColIdefics3Processor(images, tokenizer, image_seq_len=4)
    save(engine.ColIdefics3(config), processor, folder)


BUILDERS = {
    builder.__name__: builder
    for builder in (
        *(colqwen2, engine_colqwen2, colqwen2_5, colqwen3, tomoro, colqwen3_5),
        *(colpali, engine_colpali, colmodernvbert, engine_colmodernvbert, colsmol),
    )
}
