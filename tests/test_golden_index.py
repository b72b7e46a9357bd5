"""Indexes of format version 1, which every later release has to read.

They are in ``data/golden_v1`` and were written by ``python tests/test_golden_index.py FOLDER``.
A later version of the format gets a folder of its own; these files stay as they are.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pylate_eigenli import EigenLIIndex
from pylate_eigenli.storage import Store

GOLDEN = Path(__file__).parent / "data" / "golden_v1"
DTYPES = ("float16", "int8")


def tokens(seed: int, n: int) -> NDArray[np.float64]:
    """Unit vectors (n, 8) made of small integers, so that they are the same everywhere."""
    x = (np.arange(n * 8).reshape(n, 8) ** 2 * (seed + 3) + seed) % 13 - 6.0
    return x / np.linalg.norm(x, axis=1, keepdims=True)


# Strings and integers, short documents and long ones.
FIRST = {"alpha": tokens(1, 12), 2: tokens(2, 9), "2": tokens(3, 2), "": tokens(4, 20)}
SECOND = {"ünï": tokens(5, 7), -5: tokens(6, 1)}
REPLACED = {2: tokens(7, 15)}
REMOVED = "alpha"
QUERIES = [tokens(8, 4), tokens(9, 1)]


def write(folder: str | Path, dtype: Any) -> EigenLIIndex:
    """Write an index as the golden ones were written: three segments, two dead documents."""
    index = EigenLIIndex(str(folder), dtype, k=3, dtype=dtype, show_progress=False)
    for documents in (FIRST, SECOND, REPLACED):
        index.add_documents(list(documents), list(documents.values()))
    return index.remove_documents(REMOVED)


def answers(index: EigenLIIndex) -> dict[str, Any]:
    """What an index says, as JSON values."""
    results = [[[hit["id"], hit["score"]] for hit in result] for result in index(QUERIES)]
    (bases,) = index.get_documents_embeddings([[document_id for document_id, _ in results[0]]])
    stats = index.stats()
    return {
        "settings": {n: getattr(index.settings, n) for n in ("k", "dtype", "short_documents")},
        "dim": stats.dim,
        "ranks": {str(rank): documents for rank, documents in stats.ranks.items()},
        "results": results,
        "bases": [basis.tolist() for basis in bases],
    }


def assert_close(got: Any, expected: Any, tolerance: float) -> None:
    """The same structure, with numbers as close as they have to be."""
    if isinstance(expected, float):
        assert got == pytest.approx(expected, abs=tolerance)
    elif isinstance(expected, list):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_close(one, other, tolerance)
    else:
        assert got == expected


@pytest.mark.parametrize("dtype", DTYPES)
class TestGoldenIndex:
    @pytest.fixture
    def expected(self, dtype):
        return json.loads((GOLDEN / "expected.json").read_text())[dtype]

    @pytest.fixture
    def copy(self, tmp_path, dtype):
        shutil.copytree(GOLDEN / dtype, tmp_path / dtype)
        return tmp_path / dtype

    def test_says_what_it_said_when_it_was_written(self, copy, dtype, expected):
        with EigenLIIndex(str(copy.parent), dtype) as index:
            got = answers(index)
        assert got.keys() == expected.keys()
        for name, value in expected.items():
            assert_close(got[name], value, tolerance=1e-6)
        assert Store(copy).verify() == []

    def test_is_not_changed_by_reading(self, copy, dtype):
        with EigenLIIndex(str(copy.parent), dtype) as index:
            answers(index)
            index.refresh()
        before = {path.name: path.read_bytes() for path in (GOLDEN / dtype).iterdir()}
        assert {path.name: path.read_bytes() for path in copy.iterdir()} == before

    def test_can_still_be_written(self, copy, dtype):
        with EigenLIIndex(str(copy.parent), dtype, show_progress=False) as index:
            index.add_documents("new", tokens(10, 5)).remove_documents("").compact()
            assert set(index(QUERIES, k=9)[0][0]) == {"id", "score"}
        with EigenLIIndex(str(copy.parent), dtype) as index:
            assert [i for i in ("new", 2, "2", "ünï", -5) if i not in index] == []
            assert len(index) == 5

    def test_is_what_its_recipe_makes(self, tmp_path, dtype, expected):
        got = answers(write(tmp_path, dtype))
        # Another machine may round another entry of a basis up, but cannot make another index.
        for name in expected.keys() - {"bases"}:
            assert_close(got[name], expected[name], tolerance=1e-2)

    def test_knows_its_background_though_it_was_written_without_one(self, copy, tmp_path, dtype):
        with EigenLIIndex(str(copy.parent), dtype) as golden:
            written = write(tmp_path / "new", dtype)
            assert "background" not in golden._snapshot.meta
            counted = golden._background(golden._snapshot)
            np.testing.assert_allclose(
                counted.mean, written._background(written._snapshot).mean, atol=1e-2
            )

    def test_holds_what_a_reader_has_to_understand(self, copy, dtype):
        """Several segments, tombstones, both kinds of ids."""
        manifest = json.loads((copy / "manifest.json").read_text())
        assert (manifest["format"], manifest["version"]) == ("pylate-eigenli-index", 1)
        assert [segment["documents"] for segment in manifest["segments"]] == [4, 2, 1]
        assert manifest["segments"][0]["dead"]["count"] == 2
        assert list(Store(copy).snapshot) == ["2", "", "ünï", -5, 2]


def main(folder: str) -> None:
    expected = {}
    for dtype in DTYPES:
        with write(folder, dtype) as index:
            expected[dtype] = answers(index)
        (Path(folder) / dtype / "writer.lock").unlink(missing_ok=True)
    (Path(folder) / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
