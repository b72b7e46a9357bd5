"""What the package exports is documented by examples, which the doctests run."""

from __future__ import annotations

import doctest
import inspect

import pytest

import pylate_eigenli


@pytest.mark.parametrize("name", [n for n in pylate_eigenli.__all__ if n != "__version__"])
def test_every_export_has_an_example(name):
    exported = getattr(pylate_eigenli, name)
    assert not inspect.ismodule(exported)
    assert doctest.DocTestParser().get_examples(inspect.getdoc(exported))
