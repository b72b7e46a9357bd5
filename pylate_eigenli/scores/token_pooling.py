"""EigenLITokenPooling: the directions of a document in place of its tokens, for MultiVectorEncoder."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import check_positive, missing
from ..spectral.subspace import compress

__all__ = ["EigenLITokenPooling"]

try:
    from sentence_transformers.multi_vector_encoder.modules import BaseTokenPooling
except ImportError:

    class BaseTokenPooling:  # type: ignore[no-redef]
        """Takes the place of the class that sentence-transformers 6 has."""

        def __init__(self, **_: Any) -> None:
            raise missing("token pooling needs sentence-transformers 6", "sentence-transformers")


class EigenLITokenPooling(BaseTokenPooling):  # type: ignore[misc]
    """Token pooling of sentence-transformers that keeps k directions of each document.

    An index of the pooled documents, with the same k, gives the scores of an index of all tokens.
    Pass an object as ``token_pooling=`` to ``MultiVectorEncoder.encode_document``, or append it to
    the modules of a model and save it with the checkpoint, which is then loaded with
    ``MultiVectorEncoder(path, trust_remote_code=True)``. There is no gradient: train with
    :class:`pylate_eigenli.EigenLIScores` instead, and append the pooling afterwards.

    Parameters
    ----------
    k
        Number of directions to keep; a document of lower rank has fewer.
    tasks
        What is pooled, by default ``["document"]``.

    Examples
    --------
    >>> document = torch.nn.functional.normalize(torch.randn(180, 128), dim=-1)
    >>> EigenLITokenPooling(k=32).pool([document])[0].shape  # doctest: +SKIP
    torch.Size([32, 128])
    """

    config_keys: ClassVar[list[str]] = ["k", "tasks"]

    def __init__(self, k: int = 32, *, tasks: str | list[str] | None = None) -> None:
        super().__init__(tasks=tasks)
        check_positive(k=k)
        self.k = k

    def pool_one(self, embedding: Tensor, **_: Any) -> Tensor:
        """Return the directions of a document (tokens, d), each on the side of its mean token.

        Shape: (min(k, rank), d), orthonormal rows.
        """
        if torch.is_grad_enabled() and embedding.requires_grad:
            raise ValueError(
                "EigenLITokenPooling has no gradient: train without it, with "
                f"similarity_fct=EigenLIScores(k={self.k}), and append it to the trained model"
            )
        if not embedding.any():
            return embedding[:0]
        basis = compress([embedding], self.k)[0]
        towards = basis @ embedding.to(basis).sum(0)
        return torch.where(towards[:, None] < 0, -basis, basis).to(embedding.dtype)
