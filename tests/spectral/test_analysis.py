"""analyze on collections with known spectra."""

import numpy as np
import pytest
from helpers.definition import unit_rows

from pylate_eigenli import analyze

D = 32


def spread_over(directions, tokens=60, seed=0):
    """A document that spreads evenly over some of the axes."""
    return np.eye(D, dtype=np.float32)[np.resize(np.arange(directions), tokens)]


class TestAnalyze:
    def test_finds_the_rank_of_even_spectra(self):
        found = analyze([spread_over(12)] * 10)
        assert found.effective_rank == pytest.approx(12, rel=1e-6)
        assert found.energy[8] == pytest.approx(8 / 12, rel=1e-6)
        assert found.energy[16] == pytest.approx(1)

    def test_counts_short_documents(self):
        rng = np.random.default_rng(0)
        found = analyze([unit_rows(rng, n, D) for n in (4, 9, 20, 40)])
        assert found.shorter == {8: 0.25, 16: 0.5, 32: 0.75}
        assert found.tokens_per_document == pytest.approx(73 / 4)
        assert "shorter" in found.reason
        assert found.filter == "soft"

    def test_measures_anisotropy(self):
        rng = np.random.default_rng(0)
        narrow = [unit_rows(rng, 50, D) * 0.1 + np.eye(D)[0] for _ in range(20)]
        assert analyze(narrow).anisotropy > 0.9
        assert abs(analyze([unit_rows(rng, 50, D) for _ in range(20)]).anisotropy) < 0.01

    def test_recommends_a_cut_where_it_loses_nothing(self):
        found = analyze([spread_over(7)] * 10)
        assert (found.k, found.filter) == (8, "hard")

    def test_reports_its_k_for_any_dimension(self):
        rng = np.random.default_rng(3)
        found = analyze([unit_rows(rng, n, 24) for n in (10, 30, 30, 30)])
        assert found.k == 12
        assert found.energy[12] > 0.5
        assert found.shorter[12] == 0.25
        assert f"{found.energy[12]:.0%}" in found.reason

    def test_samples_a_generator_and_keeps_the_longest(self):
        documents = (spread_over(4, tokens=10 + (i == 5)) for i in range(500))
        found = analyze(documents, sample=20)
        assert found.documents == 20
        assert found.longest.shape == (8, D)

    def test_refuses_an_empty_collection(self):
        with pytest.raises(ValueError, match="no documents"):
            analyze([])

    @pytest.mark.parametrize("suffix", ["png", "svg"])
    def test_draws_spectra(self, tmp_path, suffix):
        path = tmp_path / f"spectra.{suffix}"
        analyze([spread_over(12)] * 10).plot(path)
        assert path.stat().st_size > 10_000
