from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from pylate_eigenli.storage.merging import GROWTH, plan_merges

DOCUMENT_BYTES = 100


@dataclass
class Sizes:
    """The part of a segment that planning looks at."""

    n_alive: int
    n_documents: int

    @property
    def nbytes(self) -> int:
        return self.n_documents * DOCUMENT_BYTES


def plan(segments, incoming=0, documents_per_segment=64, compact=False):
    return plan_merges(segments, incoming, documents_per_segment * DOCUMENT_BYTES, compact)


def carry_out(segments, incoming, documents_per_segment, **options):
    """The sizes that the plan leads to, and the number of documents it writes."""
    after, done, written = [], 0, 0
    for run in plan(segments, incoming, documents_per_segment, **options):
        alive = sum(segments[i].n_alive for i in run)
        if run.stop == len(segments):
            alive, incoming = alive + incoming, 0
        full, rest = divmod(alive, documents_per_segment)
        sizes = [documents_per_segment] * full + [rest] * (rest > 0)
        after += [*segments[done : run.start], *(Sizes(n, n) for n in sizes)]
        done, written = run.stop, written + alive
    assert incoming == 0
    return [*after, *segments[done:]], written


def total(segments):
    return sum(segment.n_alive for segment in segments)


segments_strategy = st.lists(
    st.integers(1, 80).flatmap(lambda n: st.builds(Sizes, st.integers(1, n), st.just(n))),
    max_size=12,
)


class TestPlans:
    @given(segments_strategy, st.integers(0, 100), st.booleans())
    def test_runs_are_in_order_and_the_last_takes_new_documents(self, segments, incoming, compact):
        runs = plan(segments, incoming, compact=compact)
        edges = [edge for run in runs for edge in (run.start, run.stop)]
        assert edges == sorted(edges)
        if incoming:
            assert runs[-1].stop == len(segments)

    @given(segments_strategy, st.integers(0, 100), st.booleans())
    def test_no_document_is_lost(self, segments, incoming, compact):
        after, _ = carry_out(segments, incoming, 64, compact=compact)
        assert total(after) == total(segments) + incoming

    @given(segments_strategy, st.integers(0, 100))
    def test_compacting_leaves_nothing_to_compact(self, segments, incoming):
        after, _ = carry_out(segments, incoming, 64, compact=True)
        assert all(segment.n_alive == segment.n_documents for segment in after)
        assert plan(after, compact=True) == []

    def test_single_additions_leave_few_segments_and_rewrite_each_document_few_times(self):
        segments, written, n = [], 0, 3000
        for count in range(1, n + 1):
            segments, wrote = carry_out(segments, 1, documents_per_segment=10**6)
            written += wrote
            assert len(segments) <= math.log2(count) + 1
        assert written <= n * (math.log(n, 1 + 1 / GROWTH) + 1)

    @given(st.lists(st.integers(1, 50), min_size=1, max_size=60))
    def test_additions_of_any_size_leave_few_small_segments(self, batches):
        segments = []
        for batch in batches:
            segments, _ = carry_out(segments, batch, documents_per_segment=64)
        full = sum(segment.n_alive >= 32 for segment in segments)
        assert len(segments) - full <= (full + 1) * (math.log2(32) + 1)

    def test_full_segments_are_left_alone(self):
        full = [Sizes(64, 64)] * 5
        assert plan(full, incoming=64) == [range(5, 5)]
        assert plan(full, compact=True) == []

    def test_removals_alone_rewrite_nothing_below_the_threshold(self):
        assert plan([Sizes(50, 64), Sizes(64, 64)]) == []

    def test_above_the_threshold_segments_with_dead_documents_are_rewritten(self):
        segments = [Sizes(64, 64), Sizes(10, 64), Sizes(20, 64), Sizes(64, 64)]
        assert plan(segments) == [range(1, 3)]

    def test_a_few_dead_bytes_are_not_worth_a_rewrite(self):
        assert plan([Sizes(40, 64)], documents_per_segment=64 * 64) == []
