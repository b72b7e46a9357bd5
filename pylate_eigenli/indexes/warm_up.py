"""Compile everything that indexes need, for images and for machines that must answer at once."""

from __future__ import annotations

import tempfile
import warnings
from typing import get_args

import torch

from ..spectral.kernels.tiers import Tiered
from ..vectors.quantization import VECTOR_DTYPES
from .eigenli import EigenLIIndex
from .rerank import Rerank
from .single_vector import EigenLISVIndex

_TOKENS, _DIM = 12, 16  # compiled code is the same for all


def warm_up() -> None:
    """Use every kind of index once, with documents that no index of yours sees.

    Machine code is kept in numba's cache: next to the package if its folder can be written,
    otherwise in ``NUMBA_CACHE_DIR`` or the user's cache.
    """
    documents = torch.randn(120, _TOKENS, _DIM, generator=torch.Generator().manual_seed(0))
    queries = documents[:5, :4]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # codes of random tokens agree less than those of real ones
        for dtype in VECTOR_DTYPES:
            vectors = EigenLISVIndex(
                folder, dtype, dtype=dtype, keep_tokens="int8", show_progress=False
            )
            vectors.add_documents(range(len(documents)), documents)
            for rerank in get_args(Rerank):
                vectors(queries, rerank=rerank)
        for filter_ in ("hard", "soft"):
            subspaces = EigenLIIndex(folder, filter_, filter=filter_, show_progress=False)
            subspaces.add_documents(range(len(documents)), documents)
            subspaces(queries)
    Tiered.compile_all()
