"""How many dimensions vectors may have in the stores people use, and what to do about more."""

from __future__ import annotations

import math

# Of the vectors that each can index, as documented by its makers.
MAX_DIMENSIONS = {
    "pgvector": 2_000,
    "pgvector-halfvec": 4_000,
    "elasticsearch": 4_096,
    "opensearch": 16_000,
    "milvus": 32_768,
    "qdrant": 65_535,
}


def check_dimension(store: str, dim: int) -> None:
    """Refuse vectors that are too long for a store, with the projections that would fit.

    Parameters
    ----------
    store
        One of ``MAX_DIMENSIONS``.
    dim
        Dimension of the vectors.

    Examples
    --------
    >>> check_dimension("milvus", 8256)
    >>> check_dimension("elasticsearch", 8256)
    Traceback (most recent call last):
    ...
    ValueError: elasticsearch takes vectors of at most 4,096 dimensions, not 8,256: shorten them \
with projection=SVProjection.fit(vectors, dim=4096), or the tokens with \
token_projection=TokenProjection.fit(tokens, dim=90)
    """
    if store not in MAX_DIMENSIONS:
        raise ValueError(f"store must be one of {', '.join(MAX_DIMENSIONS)}, got {store!r}")
    limit = MAX_DIMENSIONS[store]
    if dim > limit:
        # The largest d with d (d + 1) / 2 <= limit.
        d = (math.isqrt(8 * limit + 1) - 1) // 2
        raise ValueError(
            f"{store} takes vectors of at most {limit:,} dimensions, not {dim:,}: shorten them "
            f"with projection=SVProjection.fit(vectors, dim={limit}), or the tokens with "
            f"token_projection=TokenProjection.fit(tokens, dim={d})"
        )
