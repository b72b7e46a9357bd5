"""What the package exports is documented by examples, which the doctests run."""

from __future__ import annotations

import doctest
import importlib
import inspect

import pytest

import pylate_eigenli

# Where what the README names is found, beside the package itself.
MODULES = (
    "corpus.page_index", "corpus.pages", "corpus.sources", "corpus.text_index", "corpus.text_store",
    "evaluation.baselines", "evaluation.beir", "evaluation.bootstrap", "evaluation.mteb_search",
    "evaluation.run", "evaluation.tuning", "indexes.eigenli", "indexes.single_vector",
    "models.text_encoder", "models.vision", "scores.explanation", "server.app", "server.batching",
    "server.limits", "server.service", "spectral.analysis", "spectral.filters", "spectral.subspace",
    "storage", "vectors.projection",
)  # fmt: skip


def public_classes():
    for name in MODULES:
        module = importlib.import_module(f"pylate_eigenli.{name}")
        for attribute in getattr(module, "__all__", vars(module)):
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
