from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.anisotropic import anisotropic
from helpers.definition import projector, spectrum, unit_rows
from helpers.strategies import documents, orthogonal
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pylate_eigenli import EigenLIScores, EigenLISVIndex
from pylate_eigenli.scores.training import ridge, smooth_projector
from pylate_eigenli.tokens import collect
from pylate_eigenli.vectors.packing import unpack
from pylate_eigenli.vectors.soft import soft_vectors

D = 5
FULL_RANK = {
    "ordinary": [[0.5, 0.3, 0.15, 0.04, 0.01]],
    "a pair": [[0.4, 0.4, 0.1, 0.06, 0.04]],
    "all equal": [[0.2, 0.2, 0.2, 0.2, 0.2]],
    "equal across the cut": [[0.36, 0.2, 0.2, 0.2, 0.04]],
    "nearly equal": [[0.3, 0.3 + 1e-9, 0.2, 0.1, 0.1]],
    "several documents": [[0.5, 0.3, 0.15, 0.04, 0.01], [0.2, 0.2, 0.2, 0.2, 0.2]],
}
SPECTRA = FULL_RANK | {
    "one direction": [[1.0, 0.0, 0.0, 0.0, 0.0]],
    "two directions": [[0.5, 0.5, 0.0, 0.0, 0.0]],
}


def moments(spectra, scale=1.0, dtype=torch.float64):
    """Symmetric matrices with the given eigenvalues and random eigenvectors."""
    rng = np.random.default_rng(0)
    rotations = np.stack([orthogonal(rng, len(values)) for values in spectra])
    values = scale * np.array(spectra)
    return torch.from_numpy(rotations * values[:, None] @ rotations.mT).to(dtype)


class TestGradient:
    @pytest.mark.parametrize("k", [1, 2, 3, 5])
    @pytest.mark.parametrize("sharpness", [2.0, 8.0, 30.0])
    @pytest.mark.parametrize("spectrum", FULL_RANK)
    def test_is_the_derivative_for_every_spectrum(self, spectrum, sharpness, k):
        matrices = moments(FULL_RANK[spectrum]).requires_grad_()

        def project(x):
            return smooth_projector((x + x.mT) / 2, k, sharpness)

        assert torch.autograd.gradcheck(project, matrices, fast_mode=True)

    # Directions that a document lacks can only come in through its tokens: no moment has
    # negative eigenvalues.
    @pytest.mark.parametrize("k", [1, 2, 3, 5])
    @pytest.mark.parametrize("sharpness", [2.0, 8.0, 30.0])
    @pytest.mark.parametrize("tokens", ["one", "two", "orthonormal", "twice the same", "many"])
    def test_reaches_the_tokens_of_short_and_long_documents(self, tokens, sharpness, k):
        rng = np.random.default_rng(0)
        x = torch.from_numpy({
            "one": unit_rows(rng, 1, D),
            "two": unit_rows(rng, 2, D),
            "orthonormal": orthogonal(rng, D)[:3],
            "twice the same": unit_rows(rng, 2, D).repeat(2, axis=0),
            "many": unit_rows(rng, 12, D),
        }[tokens]).double()  # fmt: skip
        x = x[None].requires_grad_()

        def project(x):
            return smooth_projector(x.mT @ x, k, sharpness)

        assert torch.autograd.gradcheck(project, x, fast_mode=True)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("spectrum", [*SPECTRA, "nothing"])
    def test_is_finite_and_moderate(self, spectrum, dtype):
        matrices = moments(SPECTRA.get(spectrum, [[0.0] * D]), dtype=dtype).requires_grad_()
        weights = torch.from_numpy(np.random.default_rng(1).standard_normal((D, D))).to(dtype)
        (smooth_projector(matrices, 2) * weights).sum().backward()
        assert torch.isfinite(matrices.grad).all()
        assert matrices.grad.abs().max() < 1e3

    def test_float32_agrees_with_float64(self):
        for spectra in SPECTRA.values():
            grads = []
            for dtype in (torch.float32, torch.float64):
                matrices = moments(spectra, dtype=dtype).requires_grad_()
                weights = torch.arange(D * D, dtype=dtype).reshape(D, D) / D**2
                (smooth_projector(matrices, 2) * weights).sum().backward()
                grads.append(matrices.grad.double())
            torch.testing.assert_close(*grads, rtol=2e-2, atol=2e-2)


class TestWeights:
    @settings(max_examples=40, deadline=None)
    @given(documents(max_dim=12, scales=(1.0, 1e-3, 1e3)), st.data())
    def test_lie_between_0_and_1_and_add_up_to_k(self, document, data):
        d = document.tokens.shape[1]
        k = data.draw(st.integers(1, d))
        x = torch.from_numpy(document.tokens)[None]
        (p,) = smooth_projector(x.mT @ x, k)
        weights = torch.linalg.eigvalsh(p)
        torch.testing.assert_close(p, p.mT)
        assert weights.min() > -1e-9
        assert weights.max() < 1 + 1e-9
        assert weights.sum() < k + 1e-6
        if document.rank > k:
            assert weights.sum() == pytest.approx(k, abs=1e-6)

    @settings(max_examples=30, deadline=None)
    @given(documents(max_dim=12, scales=(1.0,)), st.data())
    def test_tend_to_the_projector_as_sharpness_grows(self, document, data):
        values = spectrum(document.tokens)[0]
        k = data.draw(st.integers(1, len(values)))
        # The cut must be clear, and so must be what counts as a direction at all.
        assume(k >= document.rank or values[k] < 0.9 * values[k - 1])
        assume(values[min(k, document.rank) - 1] > 0.02 * values.sum())
        x = torch.from_numpy(document.tokens)[None]
        (p,) = smooth_projector(x.mT @ x, k, sharpness=400.0)
        np.testing.assert_allclose(p, projector(document.tokens, k), atol=1e-6)

    def test_equal_eigenvalues_share_the_cut(self):
        p = smooth_projector(torch.eye(4, dtype=torch.float64)[None], k=1)[0]
        torch.testing.assert_close(p, torch.eye(4, dtype=torch.float64) / 4)

    def test_a_zero_moment_gives_zero(self):
        assert smooth_projector(torch.zeros(2, 4, 4), k=2).abs().max() < 1e-12

    @pytest.mark.parametrize("scale", [1e-6, 1e6])
    def test_the_scale_of_a_moment_does_not_matter(self, scale):
        for spectra in SPECTRA.values():
            expected = smooth_projector(moments(spectra), 2)
            torch.testing.assert_close(smooth_projector(moments(spectra, scale), 2), expected)

    def test_documents_are_independent(self):
        matrices = moments([values for spectra in SPECTRA.values() for values in spectra])
        together = smooth_projector(matrices, 2)
        for matrix, expected in zip(matrices, together, strict=True):
            torch.testing.assert_close(smooth_projector(matrix[None], 2)[0], expected)


class TestPlus:
    def batch(self, seed):
        x = torch.stack(
            [torch.stack(list(anisotropic(2, seed=seed + i, tokens=12))) for i in range(8)]
        )
        queries = torch.stack(list(anisotropic(8, seed=50 + seed, tokens=6)))
        return queries, x

    def test_scores_are_those_of_the_index_of_the_preset(self, tmp_path):
        queries, x = self.batch(1)
        # Repeated documents: the prior of the mean of few documents has no weight.
        documents = [d for _ in range(200) for d in x.flatten(0, 1)]
        index = EigenLISVIndex(
            str(tmp_path), k=8, preset="plus", dtype="float32", show_progress=False
        )
        index.add_documents(range(len(documents)), documents).fit_queries(queries)
        scores = EigenLIScores(k=8, preset="plus")(queries, x)
        for row, hits in zip(scores, index(queries, k=16, subset=range(16)), strict=True):
            found = torch.zeros(16)
            for hit in hits:
                found[hit["id"]] = hit["score"]
            torch.testing.assert_close(row, found, rtol=0.02, atol=0.02)

    def test_the_ridge_of_padded_groups_is_that_of_the_filter(self):
        x = torch.nn.functional.normalize(torch.randn(3, 7, 6, dtype=torch.float64), dim=-1)
        expected = unpack(soft_vectors(collect(x, dtype=torch.float64), np.full(3, 1 / 7)))
        found = ridge(x.mT @ x)
        torch.testing.assert_close(found.float(), expected.float(), rtol=1e-4, atol=1e-5)

    def test_ridge_has_the_gradient_of_its_differences(self):
        x = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x: ridge(x.mT @ x), x)

    def test_padding_and_masks_change_nothing(self):
        queries, x = self.batch(2)
        expected = EigenLIScores(k=4, preset="plus")(queries, x)
        padded = torch.nn.functional.pad(x, (0, 0, 0, 3))
        torch.testing.assert_close(EigenLIScores(k=4, preset="plus")(queries, padded), expected)
        garbage = padded.clone()
        garbage[..., -3:, :] = 7.0
        mask = torch.ones(garbage.shape[:-1])
        mask[..., -3:] = 0
        masked = EigenLIScores(k=4, preset="plus")(queries, garbage, documents_mask=mask)
        torch.testing.assert_close(masked, expected)

    def test_gradients_reach_every_token(self):
        queries, x = self.batch(3)
        x.requires_grad_()
        EigenLIScores(k=4, preset="plus")(queries, x).diagonal().sum().backward()
        assert torch.isfinite(x.grad).all()
        assert x.grad.any(-1).all()

    def test_an_unknown_preset_is_refused(self):
        with pytest.raises(ValueError, match="preset must be one of"):
            EigenLIScores(preset="best")
