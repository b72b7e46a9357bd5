"""What was made with PyLate works with sentence-transformers 6, and the other way round.

``python tests/models/test_worlds.py`` makes the files of the installed library anew.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from pylate_eigenli import TextIndex, open_index
from pylate_eigenli.corpus.document import Document
from pylate_eigenli.models.text_encoder import TextEncoder
from pylate_eigenli.models.text_models import installed_library

WORLDS = Path(__file__).parents[1] / "data" / "worlds"
QUERIES = ["red fruit", "blue water"]
TEXTS = ["the apple is red", "the sea is blue", "the grass is green", "a yellow sun", "the sky"]


def make(folder: Path) -> None:
    """Make a model, an index with texts, and what a search in it finds."""
    from helpers.tiny_model import tiny_model

    tiny_model(folder / "bert").save(str(folder / "model"), create_model_card=False)
    shutil.rmtree(folder / "bert")
    encoder = TextEncoder(str(folder / "model"))
    with TextIndex(folder / "index", model=encoder, k=4) as index:
        index.add_documents([Document(f"d{i}", text) for i, text in enumerate(TEXTS)])
        hits = [{hit.id: hit.score for hit in answer.hits} for answer in index.answers(QUERIES, 3)]
    expected = {
        "queries": [tokens.tolist() for tokens in encoder.encode_queries(QUERIES)],
        "documents": [tokens.tolist() for tokens in encoder.encode_documents(TEXTS)],
        "hits": hits,
    }
    (folder / "expected.json").write_text(json.dumps(expected))
    (folder / "index" / "writer.lock").unlink()


@pytest.fixture(params=["pylate", "sentence-transformers"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the files that were made with a library."""
    shutil.copytree(WORLDS / request.param, tmp_path / "world")
    return tmp_path / "world"


def test_an_index_made_with_either_library_opens_with_both(world: Path) -> None:
    expected = json.loads((world / "expected.json").read_text())
    with open_index(world / "index") as index:
        results = index([np.float32(tokens) for tokens in expected["queries"]], k=3)
    for hits, known in zip(results, expected["hits"], strict=True):
        assert [hit["id"] for hit in hits] == list(known)
        assert {hit["id"]: hit["score"] for hit in hits} == pytest.approx(known, abs=1e-4)


def test_a_model_gives_the_same_embeddings_or_is_refused(world: Path) -> None:
    encoder = TextEncoder(str(world / "model"))
    saved = json.loads((world / "model" / "config_sentence_transformers.json").read_text())
    if installed_library() == "pylate" and saved["model_type"] != "ColBERT":
        # PyLate would load it without its projection.
        with pytest.raises(ImportError, match=r'"pylate-eigenli\[sentence-transformers\]"'):
            encoder.load()
        return
    expected = json.loads((world / "expected.json").read_text())
    found = {
        "queries": encoder.encode_queries(QUERIES),
        "documents": encoder.encode_documents(TEXTS),
    }
    for kind, embeddings in found.items():
        for tokens, known in zip(embeddings, expected[kind], strict=True):
            np.testing.assert_allclose(tokens, known, atol=1e-5)
    with TextIndex(world / "index", model=encoder) as index:
        answers = index.answers(QUERIES, 3)
    for answer, known in zip(answers, expected["hits"], strict=True):
        assert {hit.id: hit.score for hit in answer.hits} == pytest.approx(known, abs=1e-4)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    with TemporaryDirectory() as scratch:  # so that no index names a folder that exists
        make(Path(scratch))
        shutil.copytree(scratch, WORLDS / installed_library(), dirs_exist_ok=True)
