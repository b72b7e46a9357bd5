"""Checkpoints of every layout load by their configuration and encode as PyLate's models do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from helpers.rendered import sheet
from safetensors.torch import load_file, save_file

from pylate_eigenli import EigenLIIndex
from pylate_eigenli.models.vision import VisionColBERT

pytest.importorskip("colpali_engine", reason="needs pip install '.[vision]'")
from helpers.tiny_vision import BUILDERS

IMAGES = [sheet("wide", (300, 200)), sheet("high", (200, 300)), sheet("small", (120, 200))]
QUERIES = ["how much?", "who was at the meeting of the board?", ""]
# What the prompt around an image adds, byte by byte; 29 tokens for the Qwen family.
PROMPTS = {
    **{"colpali": 21, "engine_colpali": 22},
    **{"colmodernvbert": 51, "engine_colmodernvbert": 51, "colsmol": 62},
}


@pytest.fixture(params=BUILDERS, scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(kind: str, checkpoints: Path) -> VisionColBERT:
    return VisionColBERT(str(checkpoints / kind))


class TestEveryLayout:
    def test_returns_ragged_unit_vectors(self, kind: str, model: VisionColBERT) -> None:
        dim = 320 if kind in ("colqwen3", "colqwen3_5", "tomoro") else 128
        for embeddings in (
            model.encode(QUERIES, is_query=True),
            model.encode(IMAGES, is_query=False),
        ):
            assert len(embeddings) == 3
            for tokens in embeddings:
                assert (tokens.ndim, tokens.shape[1], tokens.dtype) == (2, dim, np.float32)
                np.testing.assert_allclose(np.linalg.norm(tokens, axis=1), 1, atol=1e-5)
        assert len({len(tokens) for tokens in model.encode(QUERIES)}) == 3

    def test_an_input_does_not_depend_on_its_batch(self, model: VisionColBERT) -> None:
        for inputs, is_query in ((IMAGES, False), (QUERIES, True)):
            together = model.encode(inputs, batch_size=3, is_query=is_query)
            alone = [model.encode(item, is_query=is_query) for item in inputs]
            for a, b in zip(together, alone, strict=True):
                np.testing.assert_allclose(a, b, atol=1e-5)

    def test_queries_are_the_same_before_and_after_images(self, model: VisionColBERT) -> None:
        before = model.encode(QUERIES[:1])
        model.encode(IMAGES, is_query=False)
        np.testing.assert_array_equal(before[0], model.encode(QUERIES[:1])[0])

    def test_different_pages_look_different(self, model: VisionColBERT) -> None:
        black, white = model.encode(
            [sheet("x"), sheet("x").point(lambda v: 255 - v)], is_query=False
        )
        assert np.abs(black - white).max() > 0.01

    def test_the_prompt_can_be_left_out(
        self, kind: str, model: VisionColBERT, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole, queries = model.encode(IMAGES, is_query=False), model.encode(QUERIES)
        monkeypatch.setattr(model, "image_tokens_only", True)
        for tokens, image in zip(whole, model.encode(IMAGES, is_query=False), strict=True):
            assert len(tokens) - len(image) == PROMPTS.get(kind, 29)
            rows = {row.tobytes() for row in tokens}
            assert all(row.tobytes() in rows for row in image)
        for a, b in zip(queries, model.encode(QUERIES), strict=True):
            np.testing.assert_array_equal(a, b)


def test_tomoro_s_layout_is_read_as_colqwen3_without_its_code(
    checkpoints: Path, colqwen3: VisionColBERT
) -> None:
    tomoro = VisionColBERT(str(checkpoints / "tomoro"))
    same = VisionColBERT(str(checkpoints / "colqwen3"), max_visual_tokens=1280)
    for a, b in zip(
        tomoro.encode(IMAGES, is_query=False), same.encode(IMAGES, is_query=False), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(tomoro.encode(QUERIES), colqwen3.encode(QUERIES), strict=True):
        np.testing.assert_array_equal(a, b)


def test_transformers_and_colpali_engine_agree_on_colqwen2(checkpoints: Path) -> None:
    ours, theirs = (VisionColBERT(str(checkpoints / x)) for x in ("colqwen2", "engine_colqwen2"))
    for inputs, is_query in ((IMAGES, False), (QUERIES, True)):
        both = (model.encode(inputs, is_query=is_query) for model in (ours, theirs))
        for a, b in zip(*both, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


class TestAdapter:
    """As most of colpali-engine's models are published."""

    # What transformers calls modules today, and what it called them when adapters were trained.
    @pytest.mark.parametrize(
        ("kind", "today", "then"),
        [
            ("colqwen3", "language_model.layers", "language_model.layers"),
            ("colqwen3", "language_model.layers", "model.language_model.layers"),
            ("engine_colqwen2", "language_model.layers", "model.layers"),
            ("engine_colpali", "model.model.language_model", "model.language_model.model"),
        ],
    )
    def test_is_added_to_its_base(
        self, kind: str, today: str, then: str, checkpoints: Path, tmp_path: Path
    ) -> None:
        plain, adapted = self.save_adapter(checkpoints / kind, tmp_path)
        _rename(tmp_path / "adapter_model.safetensors", f".{today}", f".{then}")
        loaded = VisionColBERT(str(tmp_path)).encode(QUERIES)
        for tokens, expected, other in zip(loaded, adapted, plain, strict=True):
            np.testing.assert_allclose(tokens, expected, atol=1e-5)
            assert np.abs(tokens - other).max() > 0.01

    def test_is_refused_if_it_does_not_fit(self, checkpoints: Path, tmp_path: Path) -> None:
        self.save_adapter(checkpoints / "colqwen3", tmp_path)
        _rename(tmp_path / "adapter_model.safetensors", "language_model", "no_such_model")
        with pytest.raises(ValueError, match="does not fit its base model"):
            VisionColBERT(str(tmp_path))

    @staticmethod
    def save_adapter(base: Path, folder: Path) -> tuple[Any, Any]:
        """Save a random adapter; return the embeddings of queries without and with it."""
        from peft import LoraConfig, get_peft_model

        model = VisionColBERT(str(base))
        plain = model.encode(QUERIES)
        modules = r".*language_model.*q_proj|custom_text_proj"
        torch.manual_seed(1)
        adapted = get_peft_model(
            model.model, LoraConfig(r=2, target_modules=modules, init_lora_weights=False)
        )
        adapted.peft_config["default"].base_model_name_or_path = str(base)
        adapted.save_pretrained(folder)
        model.processor.save_pretrained(folder)
        return plain, model.encode(QUERIES)


class TestCodeOfItsOwn:
    @pytest.fixture
    def checkpoint(self, checkpoints: Path, tmp_path: Path) -> Path:
        """A ColQwen2 under a name that only its own code knows."""
        folder = tmp_path / "custom"
        folder.mkdir()
        for file in (checkpoints / "colqwen2").iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        (folder / "custom.py").write_text(
            "from transformers import ColQwen2Config, ColQwen2ForRetrieval\n"
            "class Config(ColQwen2Config):\n    model_type = 'custom'\n"
            "class Model(ColQwen2ForRetrieval):\n    config_class = Config\n"
        )
        config = json.loads((folder / "config.json").read_text())
        config |= {
            "model_type": "custom",
            "auto_map": {"AutoConfig": "custom.Config", "AutoModel": "custom.Model"},
        }
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def test_runs_only_if_it_is_trusted(self, checkpoint: Path, checkpoints: Path) -> None:
        with pytest.raises(ValueError, match="trust_remote_code=True"):
            VisionColBERT(str(checkpoint))
        model = VisionColBERT(str(checkpoint), trust_remote_code=True)
        assert type(model.model).__module__.startswith("transformers_modules")
        expected = VisionColBERT(str(checkpoints / "colqwen2")).encode(IMAGES, is_query=False)
        for a, b in zip(model.encode(IMAGES, is_query=False), expected, strict=True):
            np.testing.assert_array_equal(a, b)


class TestOptions:
    def test_visual_tokens_are_limited(self, checkpoints: Path) -> None:
        for kind in ("colqwen3", "colqwen2"):
            model = VisionColBERT(
                str(checkpoints / kind), max_visual_tokens=12, image_tokens_only=True
            )
            assert all(1 <= len(tokens) <= 12 for tokens in model.encode(IMAGES, is_query=False))
        with pytest.raises(ValueError, match="colpali has no limit on visual tokens"):
            VisionColBERT(str(checkpoints / "colpali"), max_visual_tokens=12)

    def test_bfloat16_and_eager_attention_still_give_float32_unit_vectors(
        self, checkpoints: Path, colqwen3: VisionColBERT
    ) -> None:
        model = VisionColBERT(
            str(checkpoints / "colqwen3"), dtype="bfloat16", attn_implementation="eager"
        )
        assert model.model.dtype == torch.bfloat16
        assert model.model.config._attn_implementation == "eager"
        tokens, exact = (
            model.encode(IMAGES[:1], is_query=False)[0],
            colqwen3.encode(IMAGES[:1], is_query=False)[0],
        )
        np.testing.assert_allclose(np.linalg.norm(tokens, axis=1), 1, atol=1e-5)
        assert (tokens * exact).sum(1).min() > 0.9

    def test_encode_takes_generators_and_makes_tensors(self, colqwen3: VisionColBERT) -> None:
        embeddings = colqwen3.encode(
            (image for image in IMAGES), batch_size=2, convert_to_tensor=True, is_query=False
        )
        assert [type(tokens) for tokens in embeddings] == [torch.Tensor] * 3
        with pytest.raises(ValueError, match="batch_size must be a positive integer, got 0"):
            colqwen3.encode(QUERIES, batch_size=0)


class TestRefuses:
    def test_a_model_without_a_projection(self, checkpoints: Path, tmp_path: Path) -> None:
        for file in (checkpoints / "colqwen3").iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        _rename(tmp_path / "model.safetensors", "custom_text_proj", "lm_head")
        with pytest.raises(ValueError, match=r"not a multi-vector model.*custom_text_proj.bias"):
            VisionColBERT(str(tmp_path))

    def test_a_kind_it_does_not_know(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"model_type": "bert"}')
        with pytest.raises(ValueError, match=r"type 'bert'; known are .*qwen3_vl"):
            VisionColBERT(str(tmp_path))

    def test_a_missing_library_by_naming_the_extra(
        self, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "colpali_engine.models", None)
        with pytest.raises(ImportError, match=r'colpali_engine.models: pip install .*\[vision\]"'):
            VisionColBERT(str(checkpoints / "colqwen3"))

    def test_texts_for_documents_and_images_for_queries(self, colqwen3: VisionColBERT) -> None:
        with pytest.raises(TypeError, match="documents must be PIL images, got str"):
            colqwen3.encode(["a text"], is_query=False)
        with pytest.raises(TypeError, match="queries must be texts, got Image"):
            colqwen3.encode(IMAGES, is_query=True)


def test_pylate_s_retrieval_program_runs_with_it(
    colqwen3: VisionColBERT, tmp_path: Path, pylate: ModuleType
) -> None:
    index = EigenLIIndex(str(tmp_path), k=16, show_progress=False)
    index.add_documents(["a", "b", "c"], colqwen3.encode(IMAGES, is_query=False))
    scores = pylate.retrieve.ColBERT(index=index).retrieve(
        colqwen3.encode(QUERIES, is_query=True), k=3
    )
    assert [{hit["id"] for hit in hits} for hits in scores] == [{"a", "b", "c"}] * 3


def _rename(path: Path, old: str, new: str) -> None:
    assert any(old in name for name in load_file(path))
    weights = {name.replace(old, new): weight for name, weight in load_file(path).items()}
    save_file(weights, path, {"format": "pt"})
