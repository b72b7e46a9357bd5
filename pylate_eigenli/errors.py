"""Errors a caller may want to catch; everything else is a plain ``ValueError`` or ``TypeError``."""

from __future__ import annotations


class IndexFormatError(RuntimeError):
    """The index on disk is truncated, altered, or of a format this version cannot read."""


class IndexLockedError(RuntimeError):
    """Another writer is changing the index at this moment."""


class UnknownDocumentError(KeyError):
    """A document id that the index does not hold."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""
