"""The merge policy: the segments that a commit rewrites to keep them few and mostly alive."""

from __future__ import annotations

from collections.abc import Sequence

from .segment import Segment

GROWTH = 2
"""A segment is merged with the newer ones if these hold more than ``1 / GROWTH`` of its documents.

All segments after a given one are then smaller than it by this factor, so the number of segments is
logarithmic.  A rewritten document moves to a segment at least 1.5 times as large, so the number of
rewrites per document is logarithmic too.
"""

MAX_DEAD_SHARE = 0.3
"""Share of dead bytes above which all segments with dead documents are rewritten."""

DEAD_BYTES_DIVISOR = 64
"""Dead documents are kept while they take less than this fraction of a full segment."""


def plan_merges(
    segments: Sequence[Segment],
    incoming: int,
    segment_bytes: int,
    compact: bool = False,
) -> list[range]:
    """Choose runs of segments; the commit rewrites each run as one segment.

    Runs are disjoint ranges of positions in ``segments``, which are given oldest first.  If there
    are ``incoming`` documents, the last run ends at ``len(segments)``, may be empty, and takes them.
    A segment of at least half of ``segment_bytes`` is not merged for its size; ``compact`` rewrites
    all segments that hold dead documents or are small.
    """
    dead_bytes = sum(segment.nbytes - _living_bytes(segment) for segment in segments)
    total_bytes = sum(segment.nbytes for segment in segments)
    if compact or (
        dead_bytes > MAX_DEAD_SHARE * total_bytes
        and dead_bytes >= segment_bytes / DEAD_BYTES_DIVISOR
    ):
        return _loose_runs(segments, incoming, segment_bytes)
    return _small_tail(segments, incoming, segment_bytes)


def _small_tail(segments: Sequence[Segment], incoming: int, segment_bytes: int) -> list[range]:
    start, documents = len(segments), incoming
    if segments and not incoming:  # the newest segment takes the place of new documents
        start, documents = start - 1, segments[-1].n_alive
    while (
        start
        and _is_small(segments[start - 1], segment_bytes)
        and (segments[start - 1].n_alive < GROWTH * documents)
    ):
        start -= 1
        documents += segments[start].n_alive
    run = range(start, len(segments))
    return [run] if incoming or len(run) > 1 else []


def _loose_runs(segments: Sequence[Segment], incoming: int, segment_bytes: int) -> list[range]:
    runs, start = [], 0
    for position, segment in enumerate(segments):
        if not (_has_dead(segment) or _is_small(segment, segment_bytes)):
            runs.append(range(start, position))
            start = position + 1
    runs.append(range(start, len(segments)))
    return [
        run
        for run in runs
        if len(run) > 1
        or any(_has_dead(segments[position]) for position in run)
        or (incoming and run.stop == len(segments))
    ]


def _has_dead(segment: Segment) -> bool:
    return segment.n_alive < segment.n_documents


def _is_small(segment: Segment, segment_bytes: int) -> bool:
    return _living_bytes(segment) < segment_bytes / 2


def _living_bytes(segment: Segment) -> float:
    return segment.nbytes * segment.n_alive / segment.n_documents
