"""A late-interaction model small enough to be made, and trained, within a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from pylate_eigenli.models.text_models import installed_library

WORDS = "a the is red green blue apple grass leaf sky sea fruit water plant sun yellow"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def words_tokenizer() -> Tokenizer:
    """A tokenizer with a token for every word and every run of punctuation."""
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def tiny_model(folder: Path, dim: int = 8) -> Any:
    """A model of the installed library: one random BERT layer and a vocabulary of a few words."""
    save_bert(folder)
    return tiny_colbert(folder, dim) if installed_library() == "pylate" else tiny_mv(folder, dim)


def tiny_colbert(bert: Path, dim: int) -> Any:
    """A model of PyLate."""
    from pylate import models

    return models.ColBERT(
        str(bert), embedding_size=dim, query_length=8, document_length=16, device="cpu"
    )


def tiny_mv(bert: Path, dim: int) -> Any:
    """A model of sentence-transformers 6."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    tokens = {"module_input_name": "token_embeddings"}
    modules = [
        Transformer(str(bert), query_length=8, document_length=16),
        Dense(16, dim, bias=False, activation_function=None, **tokens),
        MultiVectorMask(),
        Normalize(**tokens),
    ]
    return MultiVectorEncoder(modules=modules, device="cpu")


def save_bert(folder: Path) -> None:
    """Save the encoder and its tokenizer."""
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *WORDS.split()])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{word.strip('[]').lower()}_token": word for word in SPECIAL}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
