"""A PyLate model small enough to be made, and trained, within a test."""

from __future__ import annotations

from pathlib import Path

import torch
from pylate import models
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = "a the is red green blue apple grass leaf sky sea fruit water plant sun yellow"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def words_tokenizer() -> Tokenizer:
    """A tokenizer with a token for every word and every run of punctuation."""
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def tiny_colbert(folder: Path, dim: int = 8) -> models.ColBERT:
    """A ColBERT model of one random BERT layer and a vocabulary of a few words."""
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
    return models.ColBERT(
        str(folder), embedding_size=dim, query_length=8, document_length=16, device="cpu"
    )
