"""The largest number of dimensions that a database accepts."""

from __future__ import annotations

import math

# As documented by the databases.
MAX_DIMENSIONS = {"milvus": 32_768, "qdrant": 65_535}


def check_dimension(backend: str, dim: int) -> None:
    """Raise an error with a remedy if vectors are too long for a database."""
    limit = MAX_DIMENSIONS[backend]
    if dim > limit:
        # The largest d with d (d + 1) / 2 <= limit.
        d = (math.isqrt(8 * limit + 1) - 1) // 2
        raise ValueError(
            f"{backend} takes vectors of at most {limit:,} dimensions, not {dim:,}: shorten them "
            f"with projection=SVProjection.fit(vectors, dim={limit}), or the tokens with "
            f"token_projection=TokenProjection.fit(tokens, dim={d})"
        )
