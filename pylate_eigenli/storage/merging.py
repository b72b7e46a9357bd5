"""Which segments a commit rewrites, so that they stay few and hold few dead documents."""

from __future__ import annotations

from collections.abc import Sequence

from .segment import Segment

GROWTH = 2
"""A segment joins newer ones that hold, together, more than ``1 / GROWTH`` of its documents.

Sizes then fall by that factor from each segment to all that follow it, which makes their number
logarithmic, and a document that is rewritten finds itself in a segment 1.5 times as large, which
makes the number of times that happens to it logarithmic too.
"""

DEAD_BYTES_DIVISOR = 64
"""Dead documents are left alone while they take less than this part of a full segment."""


def plan_merges(
    segments: Sequence[Segment],
    incoming: int,
    *,
    segment_bytes: int,
    max_dead_share: float,
    compact: bool = False,
) -> list[range]:
    """Choose the runs of segments to rewrite, each as one.

    Parameters
    ----------
    segments
        All segments, oldest first.
    incoming
        Number of documents about to be written after them.
    segment_bytes
        Size of a full segment; a segment is left to itself from half of that.
    max_dead_share
        Share of dead bytes above which all segments with dead documents are rewritten.
    compact
        Rewrite whatever gains by it.

    Returns
    -------
    list of range
        Runs of positions in ``segments``, in order and disjoint.  If documents are incoming, the
        last run ends at ``len(segments)``, is possibly empty, and is the one they join.
    """
    dead_bytes = sum(segment.nbytes - _living_bytes(segment) for segment in segments)
    total_bytes = sum(segment.nbytes for segment in segments)
    if compact or (
        dead_bytes > max_dead_share * total_bytes
        and dead_bytes >= segment_bytes / DEAD_BYTES_DIVISOR
    ):
        return _loose_runs(segments, incoming, segment_bytes)
    return _small_tail(segments, incoming, segment_bytes)


def _small_tail(segments: Sequence[Segment], incoming: int, segment_bytes: int) -> list[range]:
    start, documents = len(segments), incoming
    if segments and not incoming:  # the newest segment stands in for incoming documents
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
