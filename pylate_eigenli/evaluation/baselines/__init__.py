"""What EigenLI is compared with: exact MaxSim, pooled token vectors, MUVERA's encodings."""

from __future__ import annotations

from .maxsim import maxsim_candidates, maxsim_scores, maxsim_top_k, top_k
from .muvera import Muvera
from .pooling import pool_kmeans, pool_ward

__all__ = [
    "Muvera",
    "maxsim_candidates",
    "maxsim_scores",
    "maxsim_top_k",
    "pool_kmeans",
    "pool_ward",
    "top_k",
]
