"""Cached embeddings are those of the model as it is now."""

from __future__ import annotations

import os

import numpy as np
import pytest

from pylate_eigenli.evaluation.embeddings import encode_cached


class Constant:
    """Embeds every text by its own number, and counts how often it is asked."""

    def __init__(self, value=1.0, **attributes):
        self.value = value
        self.asked = 0
        self.__dict__.update(attributes)

    def encode(self, texts, **options):
        self.asked += 1
        return [np.full((len(text), 2), self.value) for text in texts]


def encoded(model, folder, name="some/model", is_query=False):
    return encode_cached(
        model, name, ["one", "three"], folder, is_query=is_query, show_progress=False
    )


def test_texts_are_encoded_once(tmp_path):
    first, second = Constant(1.0), Constant(2.0)
    assert [len(tokens) for tokens in encoded(first, tmp_path)] == [3, 5]
    assert encoded(second, tmp_path)[1][0, 0] == 1.0
    assert (first.asked, second.asked) == (1, 0)


@pytest.mark.parametrize(
    "option",
    [
        {"query_length": 64},
        {"prompts": {"document": "passage: "}},
        {"attend_to_expansion_tokens": True},
        {"image_tokens_only": True},
        {"max_visual_tokens": 256},
        {"revision": "main"},
    ],
)
def test_what_a_model_is_told_makes_other_embeddings(tmp_path, option):
    encoded(Constant(1.0), tmp_path)
    assert encoded(Constant(2.0, **option), tmp_path)[0][0, 0] == 2.0


def test_queries_and_documents_are_kept_apart(tmp_path):
    encoded(Constant(1.0), tmp_path)
    assert encoded(Constant(2.0), tmp_path, is_query=True)[0][0, 0] == 2.0


def test_a_model_trained_again_in_its_folder_is_another(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    weights = folder / "model.safetensors"
    weights.write_bytes(b"weights")
    encoded(Constant(1.0), tmp_path / "cache", name=str(folder))
    assert encoded(Constant(2.0), tmp_path / "cache", name=str(folder))[0][0, 0] == 1.0
    written = weights.stat()
    weights.write_bytes(b"WEIGHTS")  # as long, and as if at the same time
    os.utime(weights, ns=(written.st_atime_ns, written.st_mtime_ns))
    assert encoded(Constant(2.0), tmp_path / "cache", name=str(folder))[0][0, 0] == 2.0
