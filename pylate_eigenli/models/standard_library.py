"""A corpus made at run time: the docstrings of Python's standard library.

Python modules are parsed, not imported: importing some of them opens a browser (``antigravity``),
prints a poem (``this``) or raises a deprecation warning. Compiled modules have no source, so a few
whose import has no effect are inspected instead.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

MIN_WORDS = 20
"""Shorter docstrings are too much alike."""

# Test suites, bundled tools and generated character tables: no reader looks them up.
_SKIPPED_MODULES = frozenset(
    {"distutils", "encodings", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "turtledemo"}
)
_SKIPPED_PARTS = frozenset({"test", "tests"})

# ``os.name`` is also the name of the compiled module that ``os`` re-exports. ``sys`` is left out:
# programs replace its hooks, and the corpus must not depend on that.
_INSPECTED = "array binascii builtins cmath fcntl gc itertools marshal math mmap select time unicodedata zlib"
_COMPILED_MODULES = {**{name: name for name in _INSPECTED.split()}, os.name: "os"}


@dataclass(frozen=True)
class Document:
    """A docstring without indentation, and the qualified name of the documented object.

    Examples
    --------
    >>> document = Document("gzip.compress", "Compress data in one shot.")
    >>> print(document.text)
    gzip.compress
    Compress data in one shot.
    """

    id: str
    body: str

    @property
    def text(self) -> str:
        """The text that the model reads: the name as a heading, then the docstring."""
        return f"{self.id}\n{self.body}"

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.body.partition("\n")[0]


def standard_library_documents(stdlib: Path | None = None) -> list[Document]:
    """Collect the docstrings of the standard library, by default of the running interpreter.

    They are sorted by module name and position in the source. Of several objects with the same
    docstring (aliases, overrides), the first one is kept.
    """
    stdlib = Path(sysconfig.get_path("stdlib")) if stdlib is None else stdlib
    documents: dict[str, Document] = {}
    bodies: set[str] = set()
    for name, body in (*_parsed_docstrings(stdlib), *_compiled_docstrings()):
        if len(body.split()) >= MIN_WORDS and name not in documents and body not in bodies:
            documents[name] = Document(name, body)
            bodies.add(body)
    return list(documents.values())


def sample(documents: Iterable[Document], size: int, *, salt: str = "") -> list[Document]:
    """Pick up to ``size`` documents, always the same ones, in the order given.

    The choice depends only on the ids: a smaller sample is part of a larger one, and a document
    that is added to the library, or dropped, changes at most one place. Another salt gives an
    independent sample.

    Examples
    --------
    >>> documents = [Document(f"module.function_{i}", "Does a thing.") for i in range(100)]
    >>> small, large = sample(documents, 10), sample(documents, 50)
    >>> len(small), set(small) <= set(large), small == sample(documents, 10)
    (10, True, True)
    """
    documents = list(documents)

    def draw(document: Document) -> bytes:
        return hashlib.sha256(f"{salt}\0{document.id}".encode()).digest()

    chosen = {document.id for document in sorted(documents, key=draw)[:size]}
    return [document for document in documents if document.id in chosen]


def _parsed_docstrings(stdlib: Path) -> Iterator[tuple[str, str]]:
    for path, module in _public_sources(stdlib):
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            # Some distributions ship unreadable or deliberately broken files (template code).
            continue
        yield from _docstrings_in(tree, module)


def _public_sources(stdlib: Path) -> Iterator[tuple[Path, str]]:
    """Yield the source files and dotted names of the public modules, in order."""
    for name in sorted(sys.stdlib_module_names - _SKIPPED_MODULES):
        if (stdlib / f"{name}.py").is_file():
            paths = [stdlib / f"{name}.py"]
        else:
            paths = sorted((stdlib / name).rglob("*.py"))
        for path in paths:
            parts = path.relative_to(stdlib).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            if not any(part.startswith("_") or part in _SKIPPED_PARTS for part in parts):
                yield path, ".".join(parts)


def _docstrings_in(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, name: str
) -> Iterator[tuple[str, str]]:
    if docstring := ast.get_docstring(node):
        yield name, docstring
    if isinstance(node, ast.Module | ast.ClassDef):
        for definition in _public_definitions(node):
            yield from _docstrings_in(definition, f"{name}.{definition.name}")


def _public_definitions(
    block: ast.AST,
) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the definitions of a block, also inside ``if`` and ``try`` (fallbacks)."""
    for child in ast.iter_child_nodes(block):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not child.name.startswith("_"):
                yield child
        elif isinstance(child, ast.If | ast.Try | ast.ExceptHandler):
            yield from _public_definitions(child)


def _compiled_docstrings() -> Iterator[tuple[str, str]]:
    for module, public_name in _COMPILED_MODULES.items():
        try:
            yield from _docstrings_of(importlib.import_module(module), public_name)
        except ImportError:  # not built on this platform
            continue


def _docstrings_of(owner: object, name: str) -> Iterator[tuple[str, str]]:
    # A class without a docstring inherits that of its parent.
    docstring = vars(owner).get("__doc__") if isinstance(owner, type) else owner.__doc__
    if isinstance(docstring, str):
        yield name, inspect.cleandoc(docstring)
    if isinstance(owner, type | ModuleType):
        for attribute, member in sorted(vars(owner).items()):
            if not attribute.startswith("_") and (
                isinstance(member, type) or inspect.isroutine(member)
            ):
                yield from _docstrings_of(member, f"{name}.{attribute}")
