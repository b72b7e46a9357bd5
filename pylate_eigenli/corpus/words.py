"""What counts as a word, also where a script puts no spaces between them."""

from __future__ import annotations

import re

# Thai, Lao, Myanmar, Khmer, kana, Han and Hangul: a character is about a token.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_LONGEST = 24  # letters; a longer run is an address or a code, and many tokens

WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]{{1,{_LONGEST}}}")
"""A part of a text that takes a model a token or two."""
TERM = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
"""A part of a text that another one may share with it, without punctuation."""


def count_words(text: str) -> int:
    """Return the number of words of a text.

    Examples
    --------
    >>> count_words("Most apples are red."), count_words("東京 は首都"), count_words("x" * 100)
    (4, 5, 5)
    """
    return sum(1 for _ in WORD.finditer(text))
