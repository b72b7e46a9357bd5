"""The corpus is a function of the installed standard library and of nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pylate_eigenli.models.standard_library import (
    MIN_WORDS,
    Document,
    sample,
    standard_library_documents,
)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A standard library of two modules and a package, under names that Python knows."""

    def docstring(opening: str) -> str:
        return f'"""{opening}\n\n    {"word " * MIN_WORDS}\n    """'

    (tmp_path / "gzip.py").write_text(
        f"{docstring('The module.')}\n"
        "raise RuntimeError('imported')\n"
        "try:\n"
        f"    def compress(data):\n        {docstring('Compress.')}\n"
        "except ImportError:\n"
        "    pass\n"
        f"def _private():\n    {docstring('Hidden.')}\n"
        "class File:\n"
        f"    def read(self):\n        {docstring('Read.')}\n"
        f"        def helper():\n            {docstring('Nested.')}\n"
        "    def close(self):\n        '''Too short.'''\n"
        f"    def read1(self):\n        {docstring('Read.')}\n"
    )
    (tmp_path / "bz2.py").write_text("def broken(:\n")
    (tmp_path / "json" / "tests").mkdir(parents=True)
    for module in ("__init__", "decoder", "_private", "tests/decoder_tests"):
        (tmp_path / "json" / f"{module}.py").write_text(docstring(f"File {module}."))
    (tmp_path / "not_python.py").write_text(docstring("Someone else's module."))
    return tmp_path


class TestStandardLibraryDocuments:
    def test_there_are_thousands_with_unique_ids_and_texts(self, library: list[Document]) -> None:
        assert len(library) > 1500
        assert len({document.id for document in library}) == len(library)
        assert len({document.body for document in library}) == len(library)

    def test_parsed_and_compiled_modules_are_both_there(self, library: list[Document]) -> None:
        ids = {document.id for document in library}
        assert {"subprocess.run", "tempfile.TemporaryDirectory"} <= ids
        assert {"builtins.sorted", "itertools.groupby", "os.scandir"} <= ids

    def test_bodies_are_clean_and_long_enough(self, library: list[Document]) -> None:
        for document in library:
            assert document.body == document.body.strip("\n"), document.id
            assert len(document.body.split()) >= MIN_WORDS, document.id

    def test_nothing_private_and_no_tests(self, library: list[Document]) -> None:
        for document in library:
            parts = document.id.split(".")
            assert not any(part.startswith("_") for part in parts), document.id
            assert parts[0] not in {"test", "idlelib", "lib2to3", "turtledemo"}

    def test_another_process_collects_the_same_and_imports_no_python_module(
        self, library: list[Document]
    ) -> None:
        program = (
            "import json, sys\n"
            "from pylate_eigenli.models import standard_library as corpus\n"
            "before = set(sys.modules)\n"
            "documents = corpus.standard_library_documents()\n"
            "imported = {name: sys.modules[name] for name in set(sys.modules) - before}\n"
            "print(json.dumps([[document.id, document.body] for document in documents]))\n"
            # Private modules aside: sysconfig keeps its own data in one.
            "print([name for name, module in imported.items() if not name.startswith('_')\n"
            "       and str(getattr(module, '__file__', '')).endswith('.py')])"
        )
        result = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "1"},
        )
        assert result.stderr == ""
        documents, python_modules = result.stdout.splitlines()
        assert json.loads(documents) == [[document.id, document.body] for document in library]
        assert python_modules == "[]"

    def test_public_definitions_are_found_wherever_they_stand(self, sources: Path) -> None:
        compiled = {document.id for document in standard_library_documents(Path("nowhere"))}
        documents = standard_library_documents(sources)
        parsed = [document for document in documents if document.id not in compiled]
        assert [document.id for document in parsed] == [
            "gzip",
            "gzip.compress",
            "gzip.File.read",
            "json",
            "json.decoder",
        ]
        assert parsed[1].summary == "Compress."


class TestSample:
    def test_size_is_an_upper_bound(self, library: list[Document]) -> None:
        assert len(sample(library, 100)) == 100
        assert sample(library, 10**9) == library

    def test_a_smaller_sample_is_part_of_a_larger_one(self, library: list[Document]) -> None:
        assert set(sample(library, 50)) < set(sample(library, 500))

    def test_order_is_kept(self, library: list[Document]) -> None:
        positions = [library.index(document) for document in sample(library, 50)]
        assert positions == sorted(positions)

    def test_the_rest_of_the_library_does_not_matter(self, library: list[Document]) -> None:
        chosen = sample(library, 50)
        dropped = next(document for document in library if document not in chosen)
        assert sample([d for d in library if d is not dropped], 50) == chosen

    def test_salts_are_independent(self, library: list[Document]) -> None:
        assert sample(library, 50, salt="a") != sample(library, 50, salt="b")
