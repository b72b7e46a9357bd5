"""Passages: texts cut to the length that a model reads, counted with the model's own tokenizer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from semantic_text_splitter import TextSplitter

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Cut = Callable[[str, str], list[str]]
"""Cuts a text into passages, given its title and the text."""

_BLOCK, _REACH = 100_000, 1_000  # letters: where a long text is cut first, at a space
_STEP = 16  # tokens: titles of about one length share a splitter


class Cutter:
    """Cuts texts into passages that a model reads whole, at the ends of paragraphs or sentences.

    The model reads a passage together with the title, so the title counts too. At least half of
    a passage is text, however long the title is.

    Parameters
    ----------
    tokenizer
        The model's tokenizer, without truncation and padding.
    length
        Number of tokens that the model reads of a document, special tokens not counted.

    Examples
    --------
    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> words = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> cut = Cutter(words, length=5)
    >>> cut("", "One two. Three four.\\n\\nFive.")
    ['One two.', 'Three four.\\n\\nFive.']
    """

    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        if length < 1:
            raise ValueError(f"the model reads {length} tokens of a document: nothing can be cut")
        self._tokenizer = tokenizer
        self._length = length
        self._splitters: dict[int, TextSplitter] = {}

    def __call__(self, title: str, text: str) -> list[str]:
        """Return the passages of a text."""
        of_title = len(self._tokenizer.encode(title, add_special_tokens=False).ids)
        of_title += -of_title % _STEP
        room = max(self._length - of_title, (self._length + 1) // 2)
        splitter = self._splitters.get(room)
        if splitter is None:
            splitter = TextSplitter.from_huggingface_tokenizer(self._tokenizer, room)
            self._splitters[room] = splitter
        return [passage for block in _blocks(text) for passage in splitter.chunks(block)]


def _blocks(text: str) -> Iterator[str]:
    """Yield a text in parts: the splitter takes 30 times the memory of what it splits."""
    begin = 0
    while len(text) - begin > _BLOCK:
        space = re.search(r"\s\S*$", text[begin + _BLOCK - _REACH : begin + _BLOCK])
        end = begin + _BLOCK - (_REACH - space.start() if space else 0)
        yield text[begin:end]
        begin = end
    yield text[begin:]
