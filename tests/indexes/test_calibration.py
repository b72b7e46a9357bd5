"""A new index chooses its settings by its first documents: what, when, and that it stays chosen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.anisotropic import anisotropic

from pylate_eigenli import EigenLIIndex, EigenLISVIndex, TokenProjection
from pylate_eigenli.indexes import calibration as module
from pylate_eigenli.indexes.agreement import pseudo_queries
from pylate_eigenli.indexes.calibration import (
    FEWEST_DOCUMENTS,
    FEWEST_STANDARDISED,
    Calibration,
    calibrate,
)
from pylate_eigenli.spectral.settings import PRESETS, SpectralSettings
from pylate_eigenli.tokens import collect
from pylate_eigenli.vectors.encoder import SubspaceEncoder

INDEXES = [EigenLIIndex, EigenLISVIndex]
PAPER = SubspaceEncoder.of(SpectralSettings(k=8))


def indexed(index_type, folder, n, **options):
    index = index_type(str(folder), k=8, show_progress=False, **options)
    return index.add_documents([str(i) for i in range(n)], list(anisotropic(n, seed=1)))


@pytest.mark.parametrize("index_type", INDEXES)
class TestIndex:
    def test_enough_documents_choose_and_the_choice_is_recorded(self, index_type, tmp_path):
        index = indexed(index_type, tmp_path, FEWEST_DOCUMENTS)
        assert index.calibration is not None
        assert set(index.calibration.agreements) == {"plus", "plus, filter=hard", "paper"}
        for name, value in index.calibration.settings.items():
            assert getattr(index.settings, name) == value
        index.close()
        opened = index_type(str(tmp_path), show_progress=False)
        assert opened.calibration == index_type(str(tmp_path), preset="auto").calibration
        assert opened.settings.auto

    @pytest.mark.parametrize("n", [1, FEWEST_STANDARDISED - 1])
    def test_too_few_documents_to_standardise_get_the_papers_score(self, index_type, tmp_path, n):
        index = indexed(index_type, tmp_path, n)
        assert index.calibration == Calibration("paper", {})
        assert not index.settings.standardise

    @pytest.mark.parametrize("n", [FEWEST_STANDARDISED, FEWEST_DOCUMENTS - 1])
    def test_few_documents_are_standardised_without_a_choice(self, index_type, tmp_path, n):
        index = indexed(index_type, tmp_path, n)
        assert index.calibration == Calibration("plus", {})
        assert index.settings.standardise

    @pytest.mark.parametrize("options", [{"preset": "plus"}, {"filter": "soft"}, {"idf": 0.1}])
    def test_settings_that_are_given_are_not_chosen(self, index_type, tmp_path, options):
        index = indexed(index_type, tmp_path, FEWEST_DOCUMENTS, **options)
        assert index.calibration is None
        assert not index.settings.auto

    @pytest.mark.parametrize("option", [{"filter": "hard"}, {"background": 0.5}])
    def test_what_is_to_be_chosen_cannot_be_given(self, index_type, tmp_path, option):
        with pytest.raises(ValueError, match=f"leave {next(iter(option))} out"):
            index_type(str(tmp_path), preset="auto", **option)

    def test_equal_documents_are_indexed(self, index_type, tmp_path):
        index = index_type(str(tmp_path), k=4, show_progress=False)
        index.add_documents(range(120), torch.eye(8)[:1].expand(120, 5, 8).contiguous())
        assert len(index(torch.eye(8)[:2], k=3)[0]) == 3


@pytest.mark.parametrize("in_rows", [True, False])
def test_plus_is_chosen_where_tokens_have_the_spectrum_of_a_real_model(in_rows):
    found = calibrate(PAPER, anisotropic(300, seed=2), in_rows)
    assert found.chosen == "plus"
    assert found.agreements["plus"] > found.agreements["paper"]


def test_a_candidate_that_collapses_is_not_chosen(monkeypatch):
    collapsing = {**PRESETS["plus"], "background": 0.0, "filter": "soft(10.0)"}
    candidates = {"plus": collapsing, "paper": PRESETS["paper"]}
    monkeypatch.setattr(module, "_CANDIDATES", candidates)
    documents = anisotropic(300, seed=3)
    lengths = np.random.default_rng(0).integers(4, 40, len(documents))
    items = [item[:n] for item, n in zip(documents, lengths, strict=True)]
    assert calibrate(PAPER, collect(items), in_rows=False).chosen == "paper"


@pytest.mark.parametrize("name", ["plus", "paper"])
def test_the_scores_of_rows_are_those_of_their_vectors(name):
    documents = anisotropic(120, seed=4)
    # With all directions a vector holds no more than the rows.
    settings = SpectralSettings(k=documents.dim, **PRESETS[name])
    encoder = PAPER.with_settings(settings).fitted_to(documents)
    runs, _ = pseudo_queries(documents)
    rows, vectors = (module._scores(encoder, runs, documents, in_rows) for in_rows in (True, False))
    np.testing.assert_allclose(rows, vectors, rtol=0.02, atol=0.02)


def test_tokens_of_many_dimensions_are_refused_with_the_remedy(tmp_path):
    documents = torch.nn.functional.normalize(torch.randn(3, 4, 640), dim=-1)
    index = EigenLISVIndex(str(tmp_path), show_progress=False)
    with pytest.raises(ValueError, match="TokenProjection"):
        index.add_documents(range(3), documents)
    assert index.generation == 0
    projection = TokenProjection.fit(documents, 8)
    projected = EigenLISVIndex(
        str(tmp_path), "projected", k=4, token_projection=projection, show_progress=False
    )
    assert projected.add_documents(range(3), documents)(documents[:1], k=1)[0][0]["id"] == 0


def test_subspaces_of_tokens_of_many_dimensions_are_calibrated(tmp_path):
    documents = torch.nn.functional.normalize(torch.randn(FEWEST_DOCUMENTS, 6, 640), dim=-1)
    index = EigenLIIndex(str(tmp_path), k=4, show_progress=False)
    index.add_documents(range(len(documents)), documents)
    assert index.calibration is not None
    assert index.calibration.agreements
    assert index(documents[:1], k=1)[0][0]["id"] == 0
