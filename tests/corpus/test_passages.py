"""Passages hold every letter of a text, and no more tokens than a model reads."""

from __future__ import annotations

import itertools
import re

import pytest
from helpers.tiny_model import words_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from pylate_eigenli.corpus import passages
from pylate_eigenli.corpus.passages import Cutter

WORDS = words_tokenizer()
# A token per byte, as for a script that a tokenizer has no words of.
BYTES = Tokenizer(
    models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, [])
)
BYTES.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)


def count(tokenizer, text):
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


@given(st.text(alphabet="ab.\n !海ไ\u3002", max_size=200), st.integers(1, 8))
def test_passages_hold_every_letter_once_and_no_more_tokens_than_allowed(text, length):
    cut = Cutter(WORDS, length)("", text)
    assert "".join("".join(cut).split()) == "".join(text.split())
    assert all(1 <= count(WORDS, passage) <= length for passage in cut)


@given(st.text(alphabet="ab \n", max_size=200), st.integers(1, 8))
def test_passages_are_cut_between_words(text, length):
    assert " ".join(Cutter(WORDS, length)("", text)).split() == text.split()


@given(st.text(alphabet="ab \n", max_size=300))
def test_a_long_text_is_cut_block_by_block_between_words(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passages, "_BLOCK", 40)
        patch.setattr(passages, "_REACH", 20)
        blocks = list(passages._blocks(text))
    assert "".join(blocks) == text
    assert all(len(block) <= 40 for block in blocks)
    for block, following in itertools.pairwise(blocks):
        assert following[0].isspace() or not re.search(r"\s", block[-20:])


@pytest.mark.parametrize(
    "text",
    [
        "東京は日本の首都です。人口は約千四百万人で、世界最大の都市圏の一つです。" * 20,
        "กรุงเทพมหานครเป็นเมืองหลวงและนครที่มีประชากรมากที่สุดของประเทศไทย" * 20,
        "https://example.org/" + "a1b2c3d4/" * 200,
    ],
    ids=["Japanese", "Thai", "address"],
)
def test_what_has_no_spaces_is_cut_into_passages_that_a_model_reads(text):
    cut = Cutter(BYTES, 150)("", text)
    assert len(cut) > 1
    assert "".join(cut) == text
    assert all(count(BYTES, passage) <= 150 for passage in cut)


def test_a_title_counts_but_leaves_half_of_a_passage_to_the_text():
    cut = Cutter(WORDS, 40)
    text = "word " * 200
    for title, longest in (("", 40), ("two words", 24), ("many words " * 50, 20)):
        assert max(count(WORDS, passage) for passage in cut(title, text)) == longest


def test_a_model_that_reads_nothing_is_refused():
    with pytest.raises(ValueError, match="reads 0 tokens"):
        Cutter(WORDS, 0)
