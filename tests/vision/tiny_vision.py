"""Vision models of a few thousand random weights, saved as a hub's checkpoints are."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    ColPaliConfig,
    ColPaliForRetrieval,
    ColPaliProcessor,
    ColQwen2Config,
    ColQwen2ForRetrieval,
    ColQwen2Processor,
    PaliGemmaConfig,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLImageProcessorFast,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLVideoProcessor,
    SiglipImageProcessorFast,
)

QWEN_TOKENS = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"),
    *("<|image_pad|>", "<|video_pad|>"),
]
PALI_TOKENS = ["<pad>", "<eos>", "<bos>", "<unk>", "<image>"]


def byte_tokenizer(special: list[str], **names: str) -> PreTrainedTokenizerFast:
    """A tokenizer of single bytes and some special tokens, which come first."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, additional_special_tokens=special, **names
    )


def qwen_parts(patch_size: int) -> tuple[PreTrainedTokenizerFast, Qwen2VLImageProcessorFast]:
    """A tokenizer and an image processor that makes at most 48 tokens of a page."""
    tile = (2 * patch_size) ** 2
    images = Qwen2VLImageProcessorFast(
        patch_size=patch_size, size={"shortest_edge": 4 * tile, "longest_edge": 48 * tile}
    )
    names = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    return byte_tokenizer(QWEN_TOKENS, **names), images


def qwen_ids() -> dict[str, int]:
    return {
        f"{name}_token_id": QWEN_TOKENS.index(token)
        for name, token in {
            "image": "<|image_pad|>",
            "video": "<|video_pad|>",
            "vision_start": "<|vision_start|>",
            "vision_end": "<|vision_end|>",
        }.items()
    }


def text_config(vocabulary: int, **rope: object) -> dict[str, object]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 24,
        "max_position_embeddings": 1024,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, **rope},
    }


def tiny_colqwen3(folder: Path) -> None:
    """colpali-engine's ColQwen3: a Qwen3-VL with a projection to 320 dimensions."""
    from colpali_engine.models import ColQwen3, ColQwen3Processor

    folder.mkdir()
    tokenizer, images = qwen_parts(patch_size=16)
    config = Qwen3VLConfig(
        text_config=text_config(len(tokenizer), mrope_section=[4, 4, 4], mrope_interleaved=True),
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "out_hidden_size": 48,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0],
        },
        **qwen_ids(),
    )
    torch.manual_seed(0)
    # Not by save_pretrained: colpali-engine 0.3.18 garbles the names of the weights there.
    save_file(ColQwen3(config).state_dict(), folder / "model.safetensors", {"format": "pt"})
    config.architectures = ["ColQwen3"]
    config.save_pretrained(folder)
    ColQwen3Processor(images, tokenizer, Qwen3VLVideoProcessor()).save_pretrained(folder)


def as_tomoro(source: Path, folder: Path) -> None:
    """The same weights in the layout of TomoroAI's checkpoints, which bring code of their own."""
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
    weights = load_file(source / "model.safetensors")
    projection = {
        name.replace("custom_text_proj", "embedding_proj_layer"): weights.pop(name)
        for name in list(weights)
        if name.startswith("custom_text_proj")
    }
    backbone = {f"vlm.model.{name}": weight for name, weight in weights.items()}
    head = {"vlm.lm_head.weight": torch.zeros(2, 2)}
    save_file(projection | backbone | head, folder / "model.safetensors", {"format": "pt"})


def tiny_colqwen2(folder: Path) -> None:
    """ColQwen2 as transformers has it."""
    tokenizer, images = qwen_parts(patch_size=14)
    vlm = Qwen2VLConfig(
        text_config=text_config(len(tokenizer), mrope_section=[4, 4, 4]),
        vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 48, "num_heads": 2},
        **qwen_ids(),
    )
    torch.manual_seed(0)
    ColQwen2ForRetrieval(ColQwen2Config(vlm_config=vlm)).save_pretrained(folder)
    ColQwen2Processor(images, tokenizer).save_pretrained(folder)


def as_engine_colqwen2(source: Path, folder: Path) -> None:
    """The same weights for colpali-engine's ColQwen2."""
    from colpali_engine.models import ColQwen2Processor

    folder.mkdir()
    config = json.loads((source / "config.json").read_text())["vlm_config"]
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["ColQwen2"]}))
    weights = {
        name.removeprefix("vlm.model.").replace("embedding_proj_layer", "custom_text_proj"): weight
        for name, weight in load_file(source / "model.safetensors").items()
        if "lm_head" not in name
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    tokenizer, images = qwen_parts(patch_size=14)
    ColQwen2Processor(images, tokenizer, Qwen2VLVideoProcessor()).save_pretrained(folder)


def tiny_colpali(folder: Path) -> None:
    """ColPali as transformers has it: every page is 9 tokens."""
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}
    tokenizer = byte_tokenizer(PALI_TOKENS, **names)
    size = {"height": 42, "width": 42}
    images = SiglipImageProcessorFast(size=size)
    images.image_seq_length = 9
    processor = ColPaliProcessor(images, tokenizer)
    vlm = PaliGemmaConfig(
        text_config={"model_type": "gemma"} | text_config(len(tokenizer)),
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 42,
            "patch_size": 14,
            "projection_dim": 48,
        },
        image_token_index=PALI_TOKENS.index("<image>"),
        projection_dim=48,
    )
    torch.manual_seed(0)
    ColPaliForRetrieval(ColPaliConfig(vlm_config=vlm)).save_pretrained(folder)
    processor.save_pretrained(folder)
