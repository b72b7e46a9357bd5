"""Exact search: approximate scores of all documents, then exact scores of those that could win.

Every document gets an approximate score with a known margin. Documents within twice the margin of
the k-th best are scored by the definition (:mod:`pylate_eigenli.vectors.row_scores`). So results
depend neither on the other queries of a batch nor on what is cached, and equal documents tie.

A score is one inner product of packed matrices (:mod:`pylate_eigenli.vectors.packing`). Panels hold
the packed documents of a segment at 8 bits, about as many bytes as the float16 basis, and are
compared with a query many times faster. They are built at the first search, up to a limit of memory;
segments beyond it are scored from their bases.

The margin supposes that rounding errors are independent. Those of regular vectors are not: most of
their entries may all be rounded to zero, for instance. So every vector is moved by the same random
fractions of a step before it is rounded, and its scores are moved back (a subtractive dither).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..spectral.background import Queries
from ..storage import Segment, Snapshot
from ..vectors.packing import pack_queries, pack_subspaces, packed_dim
from ..vectors.quantization import Approximation, Codes, code_width
from ..vectors.ranking import finalists
from ..vectors.row_scores import subspace_scores
from . import columns
from .documents import Allowed, SearchRequest
from .results import Hits

# float32 products of unit vectors, summed over a query of total mass 1, are this close.
_FLOAT_MARGIN = 4e-6
_BLOCK_BYTES = 32 << 20
_SCORES_BYTES = 64 << 20
_FEW_CANDIDATES = 2048  # so few are scored by the definition at once
# A weighted sum of independent uniform errors stays within this many standard deviations but once
# in 10^13 times.
_DEVIATIONS = 8.0
_STEPS = 127.5  # from zero to the largest entry at 8 bits


class Panel:
    """Rounded packed projectors of documents.

    Document i owns the rows ``offsets[i]:offsets[i + 1]`` of the bases (directions, d), float32.
    """

    def __init__(
        self, bases: Tensor, offsets: NDArray[np.int64], floors: NDArray[np.float32]
    ) -> None:
        n, dim = len(offsets) - 1, packed_dim(bases.shape[1])
        self._codes = Codes(
            np.empty((n, code_width(dim, 8)), np.uint8), np.empty(n, np.float32), 8, dim
        )
        self._dither = torch.rand(dim, generator=torch.Generator().manual_seed(0)) - 0.5
        at_once = max(1, _BLOCK_BYTES // (4 * dim))
        for begin in range(0, n, at_once):
            part = slice(begin, min(begin + at_once, n))
            packed = pack_subspaces(bases, offsets[begin : part.stop + 1], floors[part])
            codes = Codes.encode(self._dithered(packed), 8)
            self._codes.values[part], self._codes.scales[part] = codes.values, codes.scales

    def _dithered(self, packed: Tensor) -> Tensor:
        """Move vectors (n, d (d + 1) / 2), in place, by fractions of the step they get."""
        step = packed.new_zeros(len(packed), 1)
        # Moving the largest entry changes the step a little; doing so again hardly does.
        for _ in range(2):
            wanted = torch.linalg.vector_norm(packed, math.inf, dim=1, keepdim=True) / _STEPS
            packed.addcmul_(wanted - step, self._dither)
            step = wanted
        return packed

    @staticmethod
    def nbytes_per_document(d: int) -> int:
        """Return the memory one document takes."""
        return packed_dim(d) + 4

    @property
    def nbytes(self) -> int:
        """The memory the panel takes."""
        return self._codes.values.nbytes + self._codes.scales.nbytes

    def scores(self, queries: Tensor) -> Approximation:
        """Return approximate scores of packed queries (n, d (d + 1) / 2)."""
        scores, margins = self._codes.approximate_scores(queries)
        scores -= (queries @ self._dither).numpy()[:, None] * self._codes.scales
        norms = torch.linalg.vector_norm(queries, dim=1).double().numpy()
        # Rounding to a step s is off by s / sqrt(12) on average.
        deviation = float(self._codes.scales.max(initial=0.0)) / math.sqrt(12)
        return Approximation(scores, margins + _DEVIATIONS * deviation * norms)


class ExactSearch:
    """Finds the documents of a snapshot with the highest scores.

    Panels take at most ``memory_limit`` bytes; blocks and scores take about 200 MB besides, however
    many documents there are.
    """

    def __init__(self, memory_limit: int) -> None:
        self.memory_limit = memory_limit
        self._panels: dict[Hashable, Panel] = {}

    def clear(self) -> None:
        """Free the panels."""
        self._panels = {}

    def search(
        self, snapshot: Snapshot, request: SearchRequest, allowed: Allowed = None
    ) -> Iterator[Hits]:
        """Yield the hits of every query, of the living documents that it may choose from."""
        queries, k = request.queries, request.k
        present = {segment.record.data for segment in snapshot.segments}
        # Lists, here and below, because another thread may be adding a panel meanwhile.
        panels = list(self._panels.items())
        self._panels = {key: panel for key, panel in panels if key in present}
        n_rows = int(snapshot.starts[-1])
        tokens = list(queries.tokens)
        at_once = int(np.clip(_SCORES_BYTES // (4 * max(n_rows, 1)), 1, 128))
        for begin in range(0, len(tokens), at_once):
            chunk = range(begin, min(begin + at_once, len(tokens)))
            # A short list of candidates is scored exactly without screening.
            screened = [i for i in chunk if allowed is None or len(allowed[i]) > _FEW_CANDIDATES]
            candidates = dict(enumerate(allowed or ()))
            screens = self._screen(snapshot, queries.chosen(screened))
            for i, scores, margin in zip(screened, *screens, strict=True):
                chosen = candidates.get(i)
                of_chosen = scores if chosen is None else scores[chosen]
                best = finalists(of_chosen, margin, k)
                candidates[i] = best if chosen is None else chosen[best]
            for i in chunk:
                yield self._best(snapshot, tokens[i], queries.background_of(i), candidates[i], k)

    def _screen(
        self, snapshot: Snapshot, queries: Queries
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Return scores (queries, global rows), -inf for the dead, and their margins (queries,)."""
        scores = np.full((len(queries), int(snapshot.starts[-1])), -np.inf, np.float32)
        if not len(queries):
            return scores, np.zeros(0)
        packed = pack_queries(queries)
        mass = np.array([float(tokens.square().sum()) for tokens in queries.tokens])
        if queries.background is not None:
            # What may cancel is rounded all the same.
            mass *= 1 + float(queries.background.square().sum())
        margins = _FLOAT_MARGIN * mass
        for start, segment in zip(snapshot.starts.tolist(), snapshot.segments, strict=False):
            target = scores[:, start : start + segment.n_documents]
            panel = self._panel(segment, queries.tokens.dim)
            if panel is None:
                target[:] = _scored(segment, queries, packed)
            else:
                target[:], of_panel = panel.scores(packed)
                margins = np.maximum(margins, of_panel + _FLOAT_MARGIN * mass)
            target[:, ~segment.alive] = -np.inf
        return scores, margins

    def _panel(self, segment: Segment, dim: int) -> Panel | None:
        """Return the segment's panel, building it if it still fits."""
        # The checksum makes the key safe even if the folder is deleted and made anew meanwhile.
        key = segment.record.data
        panel = self._panels.get(key)
        if panel is None:
            used = sum(other.nbytes for other in list(self._panels.values()))
            if used + segment.n_documents * Panel.nbytes_per_document(dim) > self.memory_limit:
                return None
            panel = self._panels[key] = Panel(
                columns.bases(segment).decode(), segment.offsets, columns.floors(segment)
            )
        return panel

    @staticmethod
    def _best(
        snapshot: Snapshot,
        query: Tensor,
        background: Tensor | None,
        candidates: NDArray[np.int64],
        k: int,
    ) -> Hits:
        """Score candidates (sorted global rows) by the definition and return the best k."""
        scores = np.empty(len(candidates), np.float32)
        for segment, local, positions in snapshot.by_segment(candidates):
            bases, floors = columns.bases(segment), columns.floors(segment)
            scores[positions] = subspace_scores(
                bases, segment.offsets, floors, local, query, background
            )
        return Hits.best(candidates, scores, k)


def _scored(segment: Segment, queries: Queries, packed: Tensor) -> NDArray[np.float32]:
    """Return the scores of all documents of a segment from their bases. Shape: (queries, n)."""
    bases, offsets, floors = columns.bases(segment), segment.offsets, columns.floors(segment)
    n = segment.n_documents
    if len(queries) == 1:  # scored sooner than the documents are packed
        (query,), background = queries.tokens, queries.background_of(0)
        return subspace_scores(bases, offsets, floors, np.arange(n), query, background)[None]
    scores = np.empty((len(queries), n), np.float32)
    step = max(1, _BLOCK_BYTES // (4 * packed.shape[1]))
    for begin in range(0, n, step):
        part = slice(begin, min(begin + step, n))
        rows = offsets[begin : part.stop + 1]
        decoded = bases.decode(slice(int(rows[0]), int(rows[-1])))
        vectors = pack_subspaces(decoded, rows - rows[0], floors[part])
        scores[:, part] = (packed @ vectors.mT).numpy()
    return scores
