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
        assert "25% of the documents are shorter than 8" in found.reason

    def test_measures_anisotropy(self):
        rng = np.random.default_rng(0)
        narrow = [unit_rows(rng, 50, D) * 0.1 + np.eye(D)[0] for _ in range(20)]
        assert analyze(narrow).anisotropy > 0.9
        assert abs(analyze([unit_rows(rng, 50, D) for _ in range(20)]).anisotropy) < 0.01

    @pytest.mark.parametrize(("d", "k"), [(6, 2), (24, 8), (96, 32), (128, 32), (320, 64)])
    def test_recommends_a_third_of_the_dimensions_at_most(self, d, k):
        # On both testbed models 32 directions of 96 or 128 were the best, more were worse.
        rng = np.random.default_rng(5)
        found = analyze([unit_rows(rng, 50, d) for _ in range(5)])
        assert (found.k, found.preset) == (k, "auto")

    def test_names_the_anisotropy_in_its_reason(self):
        rng = np.random.default_rng(3)
        found = analyze([unit_rows(rng, n, 24) for n in (10, 30, 30, 30)])
        assert f"mean cosine {found.anisotropy:.2f}" in found.reason

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
