"""What the server of the tests serves, and to whom."""

from __future__ import annotations

TOKEN = "open sesame"
TEXTS = [
    f"the {thing} is {colour}"
    for thing in ("apple", "grass", "sky", "sea", "sun")
    for colour in ("red", "green", "blue", "yellow")
]
