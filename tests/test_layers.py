"""The architecture: import directions between folders, and rules with one place for a thing."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import pylate_eigenli

ROOT = Path(pylate_eigenli.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
TREES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in MODULES}

# Each entry of the package may import the entries listed here, and itself.
_BASE = {"errors", "tokens", "spectral", "vectors", "storage", "scores", "indexes"}
LAYERS = {
    "errors": set(),
    "tokens": {"errors"},
    "spectral": {"errors", "tokens"},
    "vectors": {"errors", "tokens", "spectral"},
    "storage": {"errors"},
    "scores": {"errors", "tokens", "spectral", "vectors"},
    "indexes": _BASE,
    "models": {"errors", "tokens"},
    "corpus": _BASE | {"models"},
    "evaluation": _BASE | {"models"},
    "server": _BASE | {"models", "corpus"},
    "cli": _BASE | {"models", "corpus", "evaluation", "server"},
}
COLUMNS = {"basis", "floor", "label", "vector_scale", "vector_along", "basis_scale", "token_scale"}


def imported(module: str, tree: ast.Module) -> set[str]:
    """The entries of the package that a module imports, inside functions too."""
    package = ["pylate_eigenli", *module.split("/")[:-1]]
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *filter(None, [node.module])])
            names |= {f"{start}.{alias.name}" for alias in node.names}
    parts = [name.split(".") for name in names]
    return {part[1] for part in parts if part[0] == "pylate_eigenli" and len(part) > 1}


def literals(tree: ast.AST) -> list[tuple[int, str]]:
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [(node.lineno, node.value) for node in nodes if isinstance(node.value, str)]


@pytest.mark.parametrize("module", sorted(set(TREES) - {"__init__.py"}))
def test_a_module_imports_only_lower_layers(module):
    entry = module.split("/")[0].removesuffix(".py")
    assert imported(module, TREES[module]) - {"__version__", entry} <= LAYERS[entry]


def test_the_package_has_few_entries():
    entries = [path.name for path in ROOT.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= 14, entries


def test_the_docstring_of_the_package_is_the_map_of_the_tree():
    paragraphs = re.findall(r"^(``.+)\n((?:    .+\n)+)", pylate_eigenli.__doc__, re.MULTILINE)
    headings = [name for heading, _ in paragraphs for name in re.findall(r"``(\w+)/?``", heading)]
    assert sorted(headings) == sorted(LAYERS)
    for heading, text in paragraphs:
        if re.fullmatch(r"``\w+/``", heading):
            folder = ROOT / heading.strip("`/")
            held = {path.stem for path in folder.iterdir()}
            assert set(re.findall(r"``(\w+)/?``", text)) <= held, folder


@pytest.mark.parametrize("module", sorted(set(TREES) - {"indexes/columns.py"}))
def test_only_indexes_columns_names_columns(module):
    found = [(line, text) for line, text in literals(TREES[module]) if text in COLUMNS]
    if not module.startswith("storage/"):  # which takes any name, and has columns of its own
        for call in (node for node in ast.walk(TREES[module]) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Attribute) and call.func.attr in ("column", "has"):
                found += [pair for argument in call.args for pair in literals(argument)]
    assert not found


@pytest.mark.parametrize("module", sorted(set(TREES) - {"spectral/kernels/compiled.py"}))
def test_only_compiled_sets_the_options_of_numba(module):
    nodes = [node for node in ast.walk(TREES[module]) if isinstance(node, ast.ImportFrom)]
    names = {alias.name for node in nodes if node.module == "numba" for alias in node.names}
    assert not names & {"njit", "jit", "vectorize", "guvectorize", "stencil"}


@pytest.mark.parametrize("module", sorted(TREES))
def test_nothing_is_pickled(module):
    nodes = [
        node for node in ast.walk(TREES[module]) if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    names = {alias.name for node in nodes for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not names & {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve"}


def libraries(nodes: Iterable[ast.AST]) -> set[str]:
    """The modules of other packages that are imported."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module or "")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("require", "import_module"):
            names |= {argument for _, argument in literals(node.args[0]) if argument[0] != "."}
    return names


# Libraries whose modules have other names than the packages that pip installs.
PACKAGES = {"PIL": "pillow", "faiss": "faiss-cpu", "grpc": "grpcio", "haystack": "haystack-ai",
            "llama_index": "llama-index-core", "sklearn": "scikit-learn"}  # fmt: skip


def test_every_library_that_is_imported_is_declared():
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    lines = [*project["project"]["dependencies"], *(line for extra in extras for line in extra)]
    declared = {re.match(r"[\w-]+", line)[0] for line in lines}
    modules = {name for tree in TREES.values() for name in libraries(ast.walk(tree))}
    imported = {name.split(".")[0] for name in modules} - sys.stdlib_module_names
    packages = {PACKAGES.get(name, name.replace("_", "-")) for name in imported}
    assert packages <= declared, packages - declared


# The modules that import a library for models; AT_IMPORT do so when they are imported themselves.
MODEL_LIBRARIES = {
    "pylate": {"scores/interface.py", "models/text_models.py", "models/default.py",
               "evaluation/methods/pylate.py"},
    "sentence_transformers": {"scores/token_pooling.py", "models/text_models.py",
                              "models/default.py"},
}  # fmt: skip
AT_IMPORT = {"scores/interface.py", "scores/token_pooling.py"}


@pytest.mark.parametrize("library", MODEL_LIBRARIES)
def test_few_modules_know_a_library_for_models(library):
    def imports(nodes):
        return any(name.split(".")[0] == library for name in libraries(nodes))

    known = {module for module, tree in TREES.items() if imports(ast.walk(tree))}
    assert known == MODEL_LIBRARIES[library]
    # The others import it inside a function, where it is needed.
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for module in known - AT_IMPORT:
        inside = [
            n for f in ast.walk(TREES[module]) if isinstance(f, functions) for n in ast.walk(f)
        ]
        outside = [node for node in ast.walk(TREES[module]) if node not in inside]
        assert not imports(outside), module


@pytest.mark.parametrize("module", sorted(set(TREES) - {"evaluation/mteb_internals.py"}))
def test_only_one_module_imports_private_modules_of_mteb(module):
    for name in libraries(ast.walk(TREES[module])):
        package, *parts = name.split(".")
        assert package != "mteb" or not any(part.startswith("_") for part in parts)


@pytest.mark.parametrize("module", sorted(set(TREES) - {"errors.py"}))
def test_only_errors_names_the_extra_to_install(module):
    assert not [
        line for line, text in literals(TREES[module]) if 'pip install "pylate-eigenli[' in text
    ]


CLI = sorted(module for module in TREES if module.startswith("cli/"))


@pytest.mark.parametrize("module", sorted(set(CLI) - {"cli/terminal.py"}))
def test_people_read_only_what_cli_terminal_has_cleaned(module):
    """Elsewhere, typer prints JSON or constants, and rich makes no text of values."""
    for call in (node for node in ast.walk(TREES[module]) if isinstance(node, ast.Call)):
        function = ast.unparse(call.func)
        if function in ("typer.echo", "typer.secho", "print"):
            assert isinstance(call.args[0], ast.Constant) or "json" in ast.unparse(call), (
                call.lineno
            )
        assert function != "Text" or not call.args, call.lineno
