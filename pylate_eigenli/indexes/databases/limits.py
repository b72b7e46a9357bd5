"""How many dimensions vectors may have in a database, and what to do about more."""

from __future__ import annotations

import math

# As documented by their makers.
MAX_DIMENSIONS = {"milvus": 32_768, "qdrant": 65_535}


def check_dimension(backend: str, dim: int) -> None:
    """Refuse vectors that are too long for a database, with the projections that would fit.

    Parameters
    ----------
    backend
        One of ``MAX_DIMENSIONS``.
    dim
        Dimension of the vectors.

    Examples
    --------
    >>> check_dimension("milvus", 8256)
    >>> check_dimension("milvus", 51360)
    Traceback (most recent call last):
    ...
    ValueError: milvus takes vectors of at most 32,768 dimensions, not 51,360: shorten them \
with projection=SVProjection.fit(vectors, dim=32768), or the tokens with \
token_projection=TokenProjection.fit(tokens, dim=255)
    """
    limit = MAX_DIMENSIONS[backend]
    if dim > limit:
        # The largest d with d (d + 1) / 2 <= limit.
        d = (math.isqrt(8 * limit + 1) - 1) // 2
        raise ValueError(
            f"{backend} takes vectors of at most {limit:,} dimensions, not {dim:,}: shorten them "
            f"with projection=SVProjection.fit(vectors, dim={limit}), or the tokens with "
            f"token_projection=TokenProjection.fit(tokens, dim={d})"
        )
