"""Errors that a caller may catch, and errors for missing extras and bad arguments.

All other errors are ``ValueError`` or ``TypeError``.
"""

from __future__ import annotations

from importlib import import_module
from numbers import Integral
from typing import Any


class IndexFormatError(RuntimeError):
    """The index on disk is damaged, or has a format that this version cannot read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from pylate_eigenli import EigenLIIndex
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "manifest.json").write_text("{}")
    >>> try:
    ...     EigenLIIndex(str(folder.parent), folder.name)
    ... except IndexFormatError as error:
    ...     print(str(error).removeprefix(str(folder)))
    /manifest.json cannot be read: key 'format' is missing
    """


class IndexLockedError(RuntimeError):
    """Another writer holds the lock of the index.

    Examples
    --------
    >>> import tempfile
    >>> from pylate_eigenli.storage import Store
    >>> folder = tempfile.mkdtemp()
    >>> with Store(folder).transaction():
    ...     try:
    ...         Store(folder).compact()
    ...     except IndexLockedError:
    ...         print("try again later")
    try again later
    """


class UploadError(RuntimeError):
    """A vector database does not hold all documents that were sent to it.

    Examples
    --------
    >>> try:
    ...     raise UploadError("2 of 100 documents have not arrived")
    ... except UploadError as error:
    ...     print(f"{error}: add them again")
    2 of 100 documents have not arrived: add them again
    """


class UnknownDocumentError(KeyError):
    """The index does not hold a document of this id.

    Examples
    --------
    >>> import tempfile
    >>> from pylate_eigenli import EigenLIIndex
    >>> index = EigenLIIndex(tempfile.mkdtemp())
    >>> try:
    ...     index.remove_documents(["a"])
    ... except UnknownDocumentError as error:
    ...     print(error)
    1 of 1 documents are not in the index: 'a'
    """

    def __str__(self) -> str:  # the default of KeyError is the repr of the message
        return str(self.args[0]) if self.args else ""


def require(library: str, extra: str, purpose: str) -> Any:
    """Import an optional library; if it is missing, raise an error that names the extra.

    Parameters
    ----------
    library
        The module to import.
    extra
        The extra of this package that installs the library.
    purpose
        The feature that needs the library, as the subject of a sentence.

    Examples
    --------
    >>> require("json", "export", "exporting").dumps([1])
    '[1]'
    >>> require("no_such_library", "plot", "drawing a plot")
    Traceback (most recent call last):
        ...
    ImportError: drawing a plot needs no_such_library: pip install "pylate-eigenli[plot]"
    """
    try:
        return import_module(library)
    except ImportError as error:
        raise missing(f"{purpose} needs {library}", extra) from error


def missing(problem: str, *extras: str) -> ImportError:
    """Return the error for a missing library that any of several extras installs.

    Examples
    --------
    >>> missing("a model needs a library", "pylate", "sentence-transformers").args[0]
    'a model needs a library: pip install "pylate-eigenli[pylate]" or "pylate-eigenli[sentence-transformers]"'
    """
    packages = " or ".join(f'"pylate-eigenli[{extra}]"' for extra in extras)
    return ImportError(f"{problem}: pip install {packages}")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise an error if a value is not one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_positive(*, or_none: bool = False, **values: object) -> None:
    """Raise an error if a value is not a positive integer, and not None if that is allowed.

    Examples
    --------
    >>> check_positive(k=0)
    Traceback (most recent call last):
        ...
    ValueError: k must be a positive integer, got 0
    """
    for name, value in values.items():
        if value is None and or_none:
            continue
        if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}")
