from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.definition import unit_rows
from helpers.strategies import orthogonal
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli.indexes.exact_search import Panel
from pylate_eigenli.tokens import collect
from pylate_eigenli.vectors.packing import pack_moments, packed_dim

FLOAT_NOISE = 4e-6  # of a query of mass 1, beside what rounding to 8 bits costs


def random_bases(rng, n, d):
    return [orthogonal(rng, d)[: int(rng.integers(1, d + 1))] for _ in range(n)]


def axes(rng, n, d):
    """Entries that 8 bits could hold exactly."""
    return [np.eye(d)[rng.permutation(d)[: int(rng.integers(1, d + 1))]] for _ in range(n)]


def signs(rng, n, d):
    """Bases of binary embeddings: few different entries, so few different errors."""
    rank = min(4, d)
    return [np.linalg.qr(np.where(rng.random((d, rank)) < 0.5, -1, 1))[0].T for _ in range(n)]


def rogue(rng, n, d):
    """One coordinate holds most of the mass, so that almost all entries are below a step."""
    rows = 0.4 * unit_rows(rng, n, d).astype(np.float64)
    rows[:, 0] = 1
    return [(row / np.linalg.norm(row))[None] for row in rows]


def spikes(rng, n, d):
    """The worst case: equal entries, hence equal errors, that a query may add up."""
    heights = np.sqrt(rng.uniform(0.3, 0.99, n))
    tails = np.sqrt((1 - heights**2) / max(d - 1, 1))
    return [np.array([[h, *[t] * (d - 1)]]) for h, t in zip(heights, tails, strict=True)]


KINDS = [random_bases, axes, signs, rogue, spikes]


def build(bases, floors):
    offsets = np.concatenate([[0], np.cumsum([len(w) for w in bases])]).astype(np.int64)
    rows = torch.from_numpy(np.concatenate(bases).astype(np.float32))
    return Panel(rows, offsets, np.asarray(floors, np.float32))


def exact(queries, bases, floors):
    return np.array(
        [
            [
                (1 - floor) * ((q @ np.asarray(w, np.float32).T) ** 2).sum() + floor * (q**2).sum()
                for w, floor in zip(bases, floors, strict=True)
            ]
            for q in (np.asarray(query, np.float64) for query in queries)
        ]
    )


class TestMargin:
    @settings(max_examples=50, deadline=None)
    @given(
        st.sampled_from(KINDS),
        st.integers(1, 48),
        st.integers(1, 6),
        st.booleans(),
        st.integers(0, 2**32 - 1),
    )
    def test_no_score_is_further_off(self, kind, d, n_queries, filled, seed):
        rng = np.random.default_rng(seed)
        bases = kind(rng, 12, d)
        floors = rng.random(len(bases)) * filled
        # Random queries, and those that the errors of a document would add up for.
        queries = [unit_rows(rng, int(n), d) for n in rng.integers(1, 9, n_queries)]
        tail = np.r_[np.zeros(1), np.ones(d - 1)] if d > 1 else np.ones(1)
        aligned = bases[0][:1] * tail
        queries += [
            (tail / np.linalg.norm(tail))[None].astype(np.float32),
            (aligned / max(np.linalg.norm(aligned), 1e-9) + 1e-9).astype(np.float32),
        ]
        panel = build(bases, floors)
        batch = collect(queries)
        packed = pack_moments(batch)
        mass = np.array([float(q.square().sum()) for q in batch])
        scores, margins = panel.scores(packed)
        allowed = margins + FLOAT_NOISE * mass
        error = np.abs(scores - exact(queries, bases, floors))
        assert (error <= allowed[:, None]).all()

    @pytest.mark.parametrize("kind", KINDS)
    def test_errors_are_those_of_independent_roundings(self, kind):
        rng = np.random.default_rng(0)
        bases = kind(rng, 300, 64)
        tail = np.r_[np.zeros(1), np.ones(63)][None]
        aligned = [w[:1] * tail for w in bases[:20]]
        queries = [tail, *(q for q in aligned if np.linalg.norm(q) > 0.1)]
        queries = [(q / np.linalg.norm(q)).astype(np.float32) for q in queries]
        panel = build(bases, np.zeros(len(bases)))
        packed = pack_moments(collect(queries))
        scores, margins = panel.scores(packed)
        error = scores - exact(queries, bases, np.zeros(len(bases)))
        # Eight deviations are what the margin allows; thousands of errors reach five at most.
        assert np.abs(error / margins[:, None]).max() < 5 / 8

    def test_grows_with_the_query(self):
        rng = np.random.default_rng(0)
        panel = build(random_bases(rng, 5, 8), np.zeros(5))
        packed = pack_moments(collect([unit_rows(rng, 3, 8)]))
        fourfold, once = panel.scores(4 * packed).margins, panel.scores(packed).margins
        np.testing.assert_allclose(fourfold, 4 * once, rtol=1e-6)


class TestScores:
    def test_few_and_many_queries_agree(self):
        rng = np.random.default_rng(0)
        panel = build(random_bases(rng, 700, 16), rng.random(700))
        packed = pack_moments(collect([unit_rows(rng, n, 16) for n in range(1, 11)]))
        together = panel.scores(packed).scores
        assert together.shape == (10, 700)
        for size in (1, 2, 3, 4, 5):
            parts = [panel.scores(packed[i : i + size]).scores for i in range(0, 10, size)]
            np.testing.assert_allclose(np.concatenate(parts), together, rtol=0, atol=2e-5)

    def test_documents_are_scored_alike_wherever_they_are(self):
        rng = np.random.default_rng(0)
        bases, floors = random_bases(rng, 2500, 6), rng.random(2500)
        packed = pack_moments(collect([unit_rows(rng, 3, 6)]))
        together = build(bases, floors).scores(packed).scores
        for i in (0, 1023, 1024, 2499):
            alone = build(bases[i : i + 1], floors[i : i + 1]).scores(packed).scores
            np.testing.assert_allclose(alone[:, 0], together[:, i], atol=1e-6)

    def test_a_panel_of_nothing_has_no_scores(self):
        panel = Panel(torch.zeros(0, 6), np.zeros(1, np.int64), np.zeros(0, np.float32))
        packed = pack_moments(collect([unit_rows(np.random.default_rng(0), 3, 6)] * 5))
        scores, margins = panel.scores(packed)
        assert scores.shape == (5, 0)
        assert margins.tolist() == [0] * 5


class TestMemory:
    @pytest.mark.parametrize("d", [1, 7, 48])
    def test_is_what_was_announced(self, d):
        panel = build(random_bases(np.random.default_rng(0), 9, d), np.zeros(9))
        assert panel.nbytes == 9 * Panel.nbytes_per_document(d) == 9 * (packed_dim(d) + 4)
