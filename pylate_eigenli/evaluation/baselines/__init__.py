"""What EigenLI is compared with beside exact MaxSim: pooled token vectors and MUVERA's encodings."""

from __future__ import annotations

from .muvera import Muvera
from .pooling import pool_kmeans, pool_ward

__all__ = ["Muvera", "pool_kmeans", "pool_ward"]
