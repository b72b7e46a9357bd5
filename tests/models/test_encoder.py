"""Encoders give arrays of tokens, name each token, and know when their model has changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.rendered import sheet

from pylate_eigenli.models.encoder import Encoder, is_gone
from pylate_eigenli.models.text_encoder import TextEncoder
from pylate_eigenli.models.text_models import installed_library
from pylate_eigenli.models.vision_encoder import VisionEncoder

QUERIES = ["the apple is red", "sky"]


@pytest.fixture(params=["texts", "pages"])
def encoder(request: pytest.FixtureRequest) -> Encoder:
    if request.param == "texts":
        return TextEncoder(str(request.getfixturevalue("tiny_model")))
    return VisionEncoder(str(request.getfixturevalue("checkpoints") / "colqwen3"), batch_size=2)


def test_every_row_of_a_query_has_a_token(encoder: Encoder) -> None:
    embeddings, tokens = encoder.encode_queries(QUERIES), encoder.query_tokens(QUERIES)
    assert [len(matrix) for matrix in embeddings] == [len(names) for names in tokens]
    assert all(matrix.dtype == np.float32 for matrix in embeddings)
    assert all(isinstance(name, str) for names in tokens for name in names)
    assert encoder.query_tokens([]) == encoder.encode_queries([]) == []


def test_documents_are_encoded_in_their_order_and_counted(encoder: Encoder) -> None:
    documents = ["red", "the sky is blue", "the sea"]
    if isinstance(encoder, VisionEncoder):
        documents = [sheet(text, size=(200, 100)) for text in documents]
    counted: list[int] = []
    together = encoder.encode_documents(documents, counted.append)
    assert sum(counted) == 3
    for document, matrix in zip(documents, together, strict=True):
        np.testing.assert_allclose(encoder.encode_documents([document])[0], matrix, atol=1e-4)


def test_a_fingerprint_follows_the_files_and_not_their_place(
    tiny_model: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_model, copy)
    assert TextEncoder(str(copy)).fingerprint == TextEncoder(str(tiny_model)).fingerprint
    (weights,) = copy.glob("model.safetensors")
    payload = bytearray(weights.read_bytes())
    payload[-1] ^= 1
    weights.write_bytes(payload)
    assert TextEncoder(str(copy)).fingerprint != TextEncoder(str(tiny_model)).fingerprint
    assert TextEncoder("nobody/has-such-a-model").fingerprint == ""


def test_a_folder_that_no_longer_exists_is_gone_but_a_name_is_not(tmp_path: Path) -> None:
    assert is_gone(str(tmp_path / "absent"))
    assert not is_gone(str(tmp_path))
    assert not is_gone("nobody/has-such-a-model")


def test_a_tokenizer_cuts_nothing_off(tiny_model: Path) -> None:
    encoder = TextEncoder(str(tiny_model))
    encoder.encode_documents(["red " * 100])
    assert len(encoder.tokenizer.encode("red " * 100, add_special_tokens=False).ids) == 100
    # The model reads 16 tokens; two of them are special, and PyLate's mark of a document is a third.
    assert encoder.document_length == (13 if installed_library() == "pylate" else 14)
