"""Backends by name: what is refused, and when."""

from __future__ import annotations

import sys

import pytest

from pylate_eigenli.indexes.ann import make
from pylate_eigenli.indexes.registry import ANN, BUILT_IN, options_of


@pytest.fixture(params=ANN)
def name(request: pytest.FixtureRequest) -> str:
    if request.param not in BUILT_IN:
        pytest.importorskip(request.param)
    return request.param


def test_known_backends_pass(name: str):
    assert len(make(name, dim=3)) == 0


def test_unknown_options_are_named(name: str):
    with pytest.raises(ValueError, match=f"the {name} backend has no option 'depth', only"):
        options_of(name, {"depth": 3})
    with pytest.raises(ValueError, match="'depth'"):
        make(name, 3, options={"depth": 3})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("voyager", {"storage": "float16"}),
        ("voyager", {"M": 1}),
        ("voyager", {"M": 2.5}),
        ("voyager", {"ef_construction": 0}),
        ("voyager", {"ef_search": -1}),
        ("sketch", {"directions": 100}),
        ("sketch", {"candidates": 0}),
        ("faiss", {"nprobe": 0}),
        ("faiss", {"ef_search": "many"}),
    ],
)
def test_bad_values_are_named(name: str, options: dict):
    (option,) = options
    with pytest.raises(ValueError, match=option):
        options_of(name, options)


@pytest.mark.parametrize("name", [name for name in ANN if name not in BUILT_IN])
def test_a_missing_library_tells_how_to_install_it(name: str, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip(name)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf'pip install "pylate-eigenli\[{name}\]"'):
        make(name, 3)
