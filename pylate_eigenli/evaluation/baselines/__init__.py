"""What EigenLI is compared with beside exact MaxSim: pooled token vectors, MUVERA and LEMUR."""

from __future__ import annotations

from .lemur import Lemur
from .muvera import Muvera
from .pooling import pool_kmeans, pool_ward

__all__ = ["Lemur", "Muvera", "pool_kmeans", "pool_ward"]
