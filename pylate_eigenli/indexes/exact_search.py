"""Exact search: screen everything cheaply, score what could win exactly.

Screening gives every document an approximate score and a margin it is correct to. Documents
within twice the margin of the k-th best are the finalists; they are scored by the definition from
the stored bases (:mod:`pylate_eigenli.indexes.definition`). So the results do not depend on how a query was
batched, which documents were cached, or in what order blocks were scanned, and equal documents tie
exactly.

Screening uses int8 panels (:mod:`pylate_eigenli.indexes.screen`), built when a segment is first searched
and kept in memory up to a limit. Segments beyond it are scored from the bases, block by block.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..spectral.background import Queries
from ..vectors.rows import decode_range
from .definition import exact_scores
from .screen import Panel
from ..storage import Segment, Snapshot
from ..tokens import TokenBatch
from ..vectors.packing import pack, pack_queries

# float32 products of unit vectors, summed over a query of total mass 1, are this close.
_FLOAT_MARGIN = 4e-6
_BLOCK_BYTES = 32 << 20
_SCORES_BYTES = 64 << 20
_FEW_CANDIDATES = 2048  # so few are scored by the definition at once


class Hits(NamedTuple):
    """Global rows of the best documents of a query and their scores, best first."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]


class ExactSearch:
    """Finds the documents of a snapshot with the highest scores.

    Parameters
    ----------
    device
        Where blocks beyond the memory limit are scored.
    memory_limit
        Bytes that panels may take. What is used besides, for blocks and scores, is about
        200 MB, however many documents there are.
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
        queries: Queries,
        k: int,
        allowed: Sequence[NDArray[np.int64] | None] | None = None,
    ) -> Iterator[Hits]:
        """Yield the hits of every query, at most k.

        Parameters
        ----------
        snapshot
            The documents, with columns ``basis`` (per row) and ``floor``.
        queries
            Their tokens on the CPU.
        k
            Number of documents wanted per query.
        allowed
            For each query the sorted global rows of living documents to choose from, or None for
            all of them.
        """
        present = {segment.record.data for segment in snapshot.segments}
        # Lists, here and below, because another thread may be adding a panel meanwhile.
        panels = list(self._panels.items())
        self._panels = {key: panel for key, panel in panels if key in present}
        n_rows = int(snapshot.starts[-1])
        tokens = list(queries.tokens)
        at_once = int(np.clip(_SCORES_BYTES // (4 * max(n_rows, 1)), 1, 128))
        for begin in range(0, len(tokens), at_once):
            chunk = list(range(begin, min(begin + at_once, len(tokens))))
            # A short list of candidates is scored exactly without screening.
            screened = [i for i in chunk if not _is_short(_allowed(allowed, i))]
            approximate, margins = self._screen(snapshot, tokens, screened, queries.against)
            position = {query: i for i, query in enumerate(screened)}
            for i in chunk:
                candidates = _allowed(allowed, i)
                if i in position:
                    scores = approximate[position[i]]
                    candidates = _finalists(scores, margins[position[i]], k, candidates)
                assert candidates is not None
                yield self._best(snapshot, tokens[i], queries.against, candidates, k)

    def _screen(
        self, snapshot: Snapshot, tokens: list[Tensor], chosen: list[int], against: Tensor | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Approximate scores (chosen, global rows), -inf for the dead, and their margins."""
        scores = np.full((len(chosen), int(snapshot.starts[-1])), -np.inf, np.float32)
        if not chosen:
            return scores, np.zeros(0)
        batch = TokenBatch(
            torch.cat([tokens[i] for i in chosen]),
            np.concatenate([[0], np.cumsum([len(tokens[i]) for i in chosen])]),
        )
        packed = pack_queries(batch, against)
        mass = np.array([float(tokens[i].square().sum()) for i in chosen])
        if against is not None:
            mass *= 1 + float(against.square().sum())  # what may cancel is rounded all the same
        margins = _FLOAT_MARGIN * mass
        for start, segment in zip(snapshot.starts.tolist(), snapshot.segments, strict=False):
            target = scores[:, start : start + segment.n_documents]
            panel = self._panel(segment, batch.dim)
            if panel is not None:
                target[:] = panel.scores(packed)
                margins = np.maximum(margins, panel.margin(packed) + _FLOAT_MARGIN * mass)
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
                decode_range(segment, "basis", 0, segment.n_documents),
                segment.offsets,
                segment.column("floor"),
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
        floors = torch.tensor(segment.column("floor"), device=self.device)
        ranks = np.diff(segment.offsets)
        step = max(1, _BLOCK_BYTES // (4 * d * (int(ranks.max(initial=1)) if directly else d)))
        for begin in range(0, segment.n_documents, step):
            end = min(begin + step, segment.n_documents)
            rows = decode_range(segment, "basis", begin, end).to(self.device)
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
            scores[positions] = exact_scores(segment, local, query, against)
        order = np.argsort(-scores, kind="stable")[:k]
        return Hits(candidates[order], scores[order])


def _allowed(
    allowed: Sequence[NDArray[np.int64] | None] | None, i: int
) -> NDArray[np.int64] | None:
    return None if allowed is None else allowed[i]


def _is_short(candidates: NDArray[np.int64] | None) -> bool:
    return candidates is not None and len(candidates) <= _FEW_CANDIDATES


def _finalists(
    scores: NDArray[np.float32], margin: float, k: int, candidates: NDArray[np.int64] | None
) -> NDArray[Any]:
    """Return the sorted rows that may be among the best k given scores correct to the margin."""
    if candidates is not None:
        scores = scores[candidates]
    if k < len(scores):
        bar = torch.topk(torch.from_numpy(scores), k).values[-1].item() - 2 * margin
    else:
        bar = -np.inf
    # The dead are at -inf: never finalists, even when all of the living are.
    rows = np.flatnonzero((scores >= bar) & (scores > -np.inf))
    return rows if candidates is None else candidates[rows]
