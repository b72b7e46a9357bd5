"""Exact search: screen everything cheaply, score what could win exactly.

Screening gives every document an approximate score and a margin it is correct to. Documents
within twice the margin of the k-th best are the finalists; they are scored by the definition from
the stored bases (:mod:`pylate_eigenli.vectors.row_scores`). So the results do not depend on how a
query was batched, which documents were cached, or in what order blocks were scanned, and equal
documents tie exactly.

Screening uses panels of 8-bit codes, built when a segment is first searched and kept in memory up to
a limit. Segments beyond it are scored from the bases, block by block.

A document's score is one inner product of packed matrices (:mod:`pylate_eigenli.vectors.packing`). At
8 bits such a vector takes d (d + 1) / 2 bytes, about as much as the float16 basis itself, and is
compared with a query many times faster. The rounding errors are known, so screening can say by
how much a score may be off: whatever could be among the best is then scored exactly.

That takes errors that are independent of each other, which those of regular vectors are not: where
most entries are small, say, all of them are rounded to zero. So every vector is moved by the same
random fractions of a step before it is rounded, and its scores are moved back (a subtractive
dither). The errors are then uniform and independent, whatever the vectors are.
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
from ..tokens import TokenBatch
from ..vectors.packing import pack, pack_queries, pack_subspaces, packed_dim
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
    many documents there are. Blocks beyond the limit are scored on the device.
    """

    def __init__(self, device: str | torch.device, memory_limit: int) -> None:
        self.device = torch.device(device)
        self.memory_limit = memory_limit
        self._panels: dict[Hashable, Panel] = {}

    def clear(self) -> None:
        """Free the panels."""
        self._panels = {}

    def search(
        self,
        snapshot: Snapshot,
        request: SearchRequest,
        allowed: Allowed = None,
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
                yield self._best(snapshot, tokens[i], queries.against_query(i), candidates[i], k)

    def _screen(
        self, snapshot: Snapshot, queries: Queries
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Approximate scores (queries, global rows), -inf for the dead, and their margins."""
        scores = np.full((len(queries), int(snapshot.starts[-1])), -np.inf, np.float32)
        if not len(queries):
            return scores, np.zeros(0)
        batch, against = queries.tokens, queries.against
        packed = pack_queries(queries)
        mass = np.array([float(tokens.square().sum()) for tokens in batch])
        if against is not None:
            mass *= 1 + float(against.square().sum())  # what may cancel is rounded all the same
        margins = _FLOAT_MARGIN * mass
        for start, segment in zip(snapshot.starts.tolist(), snapshot.segments, strict=False):
            target = scores[:, start : start + segment.n_documents]
            panel = self._panel(segment, batch.dim)
            if panel is not None:
                target[:], of_panel = panel.scores(packed)
                margins = np.maximum(margins, of_panel + _FLOAT_MARGIN * mass)
            else:
                self._score_blocks(segment, batch, packed, against is None, target)
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

    def _score_blocks(
        self,
        segment: Segment,
        queries: TokenBatch,
        packed: Tensor,
        are_moments: bool,
        out: NDArray[np.float32],
    ) -> None:
        """Write the scores of a segment's documents, computed from their bases."""
        d = queries.dim
        # Few query tokens: multiply them with the bases. Many, or matrices that are not just the
        # tokens' moments: form the projectors once for all.
        directly = are_moments and len(queries.tokens) < 2 * d
        tokens = queries.tokens.to(self.device)
        packed = packed.to(self.device)
        total = packed[:, :d].sum(1)
        owner_of_token = torch.repeat_interleave(torch.from_numpy(queries.lengths)).to(self.device)
        bases_of, offsets = columns.bases(segment), segment.offsets
        floors = torch.tensor(columns.floors(segment), device=self.device)
        ranks = np.diff(segment.offsets)
        step = max(1, _BLOCK_BYTES // (4 * d * (int(ranks.max(initial=1)) if directly else d)))
        for begin in range(0, segment.n_documents, step):
            end = min(begin + step, segment.n_documents)
            rows = bases_of.decode(slice(int(offsets[begin]), int(offsets[end]))).to(self.device)
            floor = floors[begin:end]
            if directly:
                caught = rows.new_zeros(len(rows), len(queries)).index_add_(
                    1, owner_of_token, (rows @ tokens.mT).square_()
                )
                owner = torch.repeat_interleave(torch.from_numpy(ranks[begin:end])).to(self.device)
                scores = rows.new_zeros(end - begin, len(queries)).index_add_(0, owner, caught)
            else:
                bases = torch.nn.utils.rnn.pad_sequence(
                    list(torch.split(rows, ranks[begin:end].tolist())), batch_first=True
                )
                scores = pack(bases.mT @ bases) @ packed.mT
            out[:, begin:end] = torch.lerp(scores, total[None, :], floor[:, None]).mT.cpu().numpy()

    @staticmethod
    def _best(
        snapshot: Snapshot,
        query: Tensor,
        against: Tensor | None,
        candidates: NDArray[np.int64],
        k: int,
    ) -> Hits:
        """Score candidates (sorted global rows) by the definition and return the best k."""
        scores = np.empty(len(candidates), np.float32)
        for segment, local, positions in snapshot.by_segment(candidates):
            bases, floors = columns.bases(segment), columns.floors(segment)
            scores[positions] = subspace_scores(
                bases, segment.offsets, floors, local, query, against
            )
        return Hits.best(candidates, scores, k)
