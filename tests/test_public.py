"""The public names have examples, which the doctests run, and are imported lazily."""

from __future__ import annotations

import doctest
import importlib
import inspect
import subprocess
import sys

import pytest

import pylate_eigenli

# Modules whose classes the README names.
MODULES = (
    "corpus.catalogue", "corpus.hits", "corpus.page_index", "corpus.pages", "corpus.passages",
    "corpus.sources", "corpus.text_index", "corpus.updating",
    "evaluation.baselines", "evaluation.beir", "evaluation.bootstrap", "evaluation.mteb_search",
    "evaluation.run", "evaluation.tuning", "indexes.eigenli", "indexes.single_vector",
    "models.encoder", "models.text_encoder", "models.vision", "models.vision_encoder",
    "scores.explanation", "scores.token_pooling", "scores.training", "server.app",
    "server.batching", "server.gate",
    "server.service", "spectral.analysis", "spectral.filters", "spectral.subspace", "storage",
    "vectors.projection",
)  # fmt: skip
# The other classes of these modules are internal.
NAMED = {"corpus.page_index": ("PageIndex",), "corpus.pages": ("Page", "PageReader")}


def public_classes():
    for name in MODULES:
        module = importlib.import_module(f"pylate_eigenli.{name}")
        for attribute in getattr(module, "__all__", NAMED.get(name, vars(module))):
            value = getattr(module, attribute)
            own = hasattr(module, "__all__") or getattr(value, "__module__", "") == module.__name__
            if inspect.isclass(value) and own and not attribute.startswith("_"):
                yield pytest.param(value, id=f"{name}.{attribute}")


@pytest.mark.parametrize("public", list(public_classes()))
def test_every_public_class_has_an_example(public):
    assert doctest.DocTestParser().get_examples(public.__doc__ or "")


@pytest.mark.parametrize("name", [n for n in pylate_eigenli.__all__ if n != "__version__"])
def test_every_export_has_an_example(name):
    exported = getattr(pylate_eigenli, name)
    assert not inspect.ismodule(exported)
    assert doctest.DocTestParser().get_examples(inspect.getdoc(exported))


def test_the_public_surface_is_small_and_complete():
    assert set(pylate_eigenli.__all__) == set(dir(pylate_eigenli)) == {
        "EigenLIIndex", "EigenLISVIndex", "TextIndex", "open_index",
        "compress", "explain", "rerank", "analyze", "tune",
        "EigenLIScores", "SVProjection", "TokenProjection",
        "IndexFormatError", "IndexLockedError", "UnknownDocumentError", "UploadError",
        "__version__",
    }  # fmt: skip


def test_importing_the_package_imports_nothing_heavy():
    program = "import sys, pylate_eigenli; print({'torch', 'numba', 'numpy'} & set(sys.modules))"
    run = [sys.executable, "-c", program]
    result = subprocess.run(run, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
