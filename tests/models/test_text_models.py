"""Both libraries serve one interface; without them the rest of the package works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pylate_eigenli.models import text_models
from pylate_eigenli.models.text_models import adapted, load_model
from pylate_eigenli.scores.token_pooling import EigenLITokenPooling

TEXTS = ["the apple is red", "sky", "red " * 100]

# Makes an environment of the core alone out of this one.
WITHOUT = """
import sys
from importlib import metadata

ABSENT = {"pylate", "sentence_transformers", "transformers", "huggingface_hub", "tokenizers", "mteb"}

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def version(name, known=metadata.version):
    if name.replace("-", "_") in ABSENT:
        raise metadata.PackageNotFoundError(name)
    return known(name)

sys.meta_path.insert(0, Finder())
metadata.version = version
"""


def run_without_libraries(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT + program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


class TestAdapters:
    def test_the_model_s_own_embeddings_are_returned(self, tiny_model: Path) -> None:
        model = load_model(str(tiny_model))
        adapter = adapted(model)
        if isinstance(adapter, text_models.ColBERTModel):
            expected = [model.encode(TEXTS, is_query=is_query) for is_query in (True, False)]
        else:
            expected = [model.encode_query(TEXTS), model.encode_document(TEXTS)]
        found = [adapter.encode(TEXTS, is_query=is_query) for is_query in (True, False)]
        for ours, theirs in zip(found, expected, strict=True):
            for tokens, known in zip(ours, theirs, strict=True):
                assert tokens.dtype == np.float32
                np.testing.assert_allclose(tokens, np.asarray(known), atol=1e-6)

    def test_options_of_pylate_replace_those_of_the_checkpoint(self, tiny_model: Path) -> None:
        document = "red apple, sky. " * 10
        options = {"document_length": 9, "query_length": 5, "skiplist_words": []}
        expanded = adapted(load_model(str(tiny_model), do_query_expansion=True, **options))
        assert [len(tokens) for tokens in expanded.encode([document], is_query=False)] == [9]
        asked = ["sky", "red " * 9]
        assert [len(tokens) for tokens in expanded.encode(asked, is_query=True)] == [5, 5]
        plain = adapted(load_model(str(tiny_model), do_query_expansion=False, **options))
        short, long = plain.encode(asked, is_query=True)
        assert len(short) < len(long) == 5

    def test_other_models_are_refused(self) -> None:
        with pytest.raises(TypeError, match="object is neither PyLate's ColBERT nor a MultiVector"):
            adapted(object())

    def test_prompts_take_from_the_length_of_documents(
        self, tiny_model: Path, multi_vector: ModuleType
    ) -> None:
        model = load_model(str(tiny_model))
        before = adapted(model).document_length
        model.prompts["document"] = "the fruit "
        assert adapted(model).document_length == before - 2


class TestWithoutLibraries:
    def test_the_core_works(self, tmp_path: Path) -> None:
        program = """
import torch
from pylate_eigenli import *
from pylate_eigenli.scores.interface import Base
documents, queries = torch.randn(20, 9, 16), torch.randn(3, 4, 16)
for kind in (EigenLIIndex, EigenLISVIndex):
    index = kind(sys.argv[1], kind.__name__, k=4, show_progress=False)
    assert isinstance(index, Base)
    assert len(index.add_documents(range(20), documents)(queries, k=5)[2]) == 5
    index.remove_documents([3])
    open_index(f"{sys.argv[1]}/{kind.__name__}").close()
rerank([[0, 1]] * 3, queries, [documents[:2]] * 3, k=4)
explain(queries[0], documents[0], k=4)
analyze(documents)
EigenLIScores(k=4)(queries, documents[:4, None].requires_grad_()).sum().backward()
"""
        done = run_without_libraries(program, tmp_path)
        assert done.returncode == 0, done.stderr

    def test_the_command_line_names_both_extras(self, tmp_path: Path) -> None:
        corpus = tmp_path / "corpus.jsonl"
        corpus.write_text('{"id": "a", "text": "the apple is red"}\n')
        program = "from pylate_eigenli.cli import main; main()"
        for model in ((), ("--model", tmp_path)):
            done = run_without_libraries(program, "index", tmp_path / "index", corpus, *model)
            assert done.returncode == 1
            assert '"pylate-eigenli[pylate]"' in done.stderr
            assert '"pylate-eigenli[sentence-transformers]"' in done.stderr
            assert "Traceback" not in done.stderr

    def test_an_index_is_described(self, tmp_path: Path) -> None:
        program = """
import torch
from pylate_eigenli import TextIndex
from pylate_eigenli.corpus.document import Document
with TextIndex(sys.argv[2], k=2) as index:
    index.add_documents([Document("a", "red")], [torch.eye(8)[:3]])
from pylate_eigenli.cli import main; main()
"""
        done = run_without_libraries(program, "info", tmp_path / "index")
        assert done.returncode == 0, done.stderr
        assert "documents" in done.stdout

    def test_token_pooling_names_its_extra(self, pylate: ModuleType) -> None:
        with pytest.raises(ImportError, match=r'"pylate-eigenli\[sentence-transformers\]"'):
            EigenLITokenPooling(k=2)
