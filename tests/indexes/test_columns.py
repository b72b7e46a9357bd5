from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from benchmarks import synthetic

from pylate_eigenli import EigenLISVIndex
from pylate_eigenli.vectors.encoder import VectorEncoder
from pylate_eigenli.vectors.quantization import VECTOR_DTYPES, StoredVectors

D = 96


@pytest.fixture
def axis() -> torch.Tensor:
    return torch.nn.functional.normalize(torch.arange(1.0, D + 1), dim=0)


@pytest.fixture
def vectors(axis) -> torch.Tensor:
    """Alike but for how much they have of the axis, which is much."""
    torch.manual_seed(0)
    return torch.randn(20, D) + torch.linspace(-100, 100, 20)[:, None] * axis


@pytest.mark.parametrize("dtype", VECTOR_DTYPES)
class TestEveryDtype:
    def test_keeps_what_lies_along_the_axis(self, vectors, axis, dtype):
        decoded = StoredVectors.encode(vectors, dtype, axis).decode(axis)
        torch.testing.assert_close(decoded @ axis, vectors @ axis, atol=1e-3, rtol=1e-3)

    def test_rounds_the_rest_as_if_there_were_no_axis(self, vectors, axis, dtype):
        rest = vectors - (vectors @ axis)[:, None] * axis
        error = (StoredVectors.encode(vectors, dtype, axis).decode(axis) - vectors).norm(dim=1)
        plain = StoredVectors.encode(rest, dtype, None).decode(None)
        # Floats of 16 bits are not split: their error is one of the whole vector.
        bound = (plain - rest).norm(dim=1) * 1.01 + (5e-2 if dtype == "float16" else 1e-4)
        assert (error <= bound).all()


class TestIndex:
    @pytest.mark.parametrize("dtype", VECTOR_DTYPES)
    def test_scores_what_it_reads_back(self, tmp_path, dtype):
        documents = synthetic.documents(30, 20, 16)
        index = EigenLISVIndex(str(tmp_path), k=4, dtype=dtype, preset="paper", show_progress=False)
        index.add_documents(range(30), documents)
        snapshot = index._snapshot
        (segment,) = snapshot.segments
        queries = torch.randn(3, 136)
        codec = index._collection.codec(snapshot)
        rows = np.array([1, 4, 29])
        scores = codec.scores(codec.stored((segment, rows)), queries)
        expected = queries @ codec.read(segment, rows).T
        np.testing.assert_allclose(scores, expected, atol=1e-3)

    def test_made_before_there_was_an_axis_goes_on_without(self, tmp_path, monkeypatch):
        documents = synthetic.documents(40, 20, 16)
        with monkeypatch.context() as patch:
            patch.setattr(VectorEncoder, "centred_on", _without_axis(VectorEncoder.centred_on))
            index = EigenLISVIndex(str(tmp_path), k=4, dtype="int8", show_progress=False)
            index.add_documents(range(20), documents[:20])
        index = EigenLISVIndex(str(tmp_path), show_progress=False)
        index.add_documents(range(20, 40), documents[20:])
        assert not any(segment.has("vector_along") for segment in index._snapshot.segments)
        index.remove_documents([3]).compact()
        assert index(documents[25], k=1)[0][0]["id"] == 25


def _without_axis(centred_on):
    return lambda *arguments: replace(centred_on(*arguments), axis=None, mean_row=None)
