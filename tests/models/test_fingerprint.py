"""A model is known by its weights and its settings, not by its name."""

from __future__ import annotations

import pytest
import torch
from helpers.tiny_model import save_bert, tiny_colbert

from pylate_eigenli.models.fingerprint import fingerprint


@pytest.fixture
def model(tmp_path, pylate):
    save_bert(tmp_path / "bert")
    return tiny_colbert(tmp_path / "bert", dim=8)


def test_the_same_model_elsewhere_has_the_same(model, tmp_path):
    from pylate import models

    model.save(str(tmp_path / "saved"))
    before = fingerprint(model, "one")
    assert fingerprint(models.ColBERT(str(tmp_path / "saved"), device="cpu"), "other") == before


def test_any_weight_makes_another(model):
    seen = {fingerprint(model)}
    for weights in model.parameters():
        with torch.no_grad():
            weights.view(-1)[-1] += 1
        seen.add(fingerprint(model))
    assert len(seen) == 1 + len(list(model.parameters()))


@pytest.mark.parametrize(
    ("name", "value"), [("query_length", 7), ("prompts", {"query": "q: "}), ("skiplist_words", [])]
)
def test_any_setting_makes_another(model, name, value):
    before = fingerprint(model)
    setattr(model, name, value)
    assert fingerprint(model) != before


def test_half_precision_is_another(model):
    before = fingerprint(model)
    assert fingerprint(model.half()) != before


def test_a_wrapper_is_known_by_its_model(model):
    class Wrapper:
        def __init__(self, model):
            self.model = model

    before = fingerprint(Wrapper(model))
    next(model.parameters()).data.add_(1)
    assert fingerprint(Wrapper(model)) != before


def test_without_weights_the_name_counts():
    assert fingerprint(object(), "some/model") != fingerprint(object(), "other/model")
