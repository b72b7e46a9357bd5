"""Unit rows, directions or tokens, at the precision of a dtype: rounded and read back."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

RowDtype = Literal["float32", "float16", "int8"]
ROW_DTYPES: tuple[RowDtype, ...] = get_args(RowDtype)
_ALL = slice(None)


class StoredRows(NamedTuple):
    """Rows (n, d) of a :data:`RowDtype`; of int8, row i stands for ``scales[i] * values[i]``.

    Examples
    --------
    >>> StoredRows.encode(torch.tensor([[0.6, 0.8]]), "int8").values
    array([[ 95, 127]], dtype=int8)
    """

    values: NDArray[Any]
    scales: NDArray[np.float32] | None = None

    @classmethod
    def encode(cls, rows: Tensor, dtype: RowDtype) -> StoredRows:
        """Round rows (n, d)."""
        values = rows.float().cpu().numpy()
        if dtype != "int8":
            return cls(values.astype(dtype))
        scale = np.abs(values).max(axis=1, keepdims=True) / 127
        scale[scale == 0] = 1  # a direction of no weight
        return cls(np.rint(values / scale).astype(np.int8), scale[:, 0])

    def decode(self, chosen: slice | NDArray[np.int64] = _ALL) -> Tensor:
        """Return rows, in memory of their own. Shape: (chosen, d), float32."""
        # A slice stays a view of a mapped file: conversion makes the only copy.
        rows = torch.tensor(np.asarray(self.values[chosen]), dtype=torch.float32)
        if self.scales is not None:
            rows *= torch.tensor(self.scales[chosen])[:, None]
        return rows

    def decode_items(
        self, offsets: NDArray[np.int64], items: NDArray[np.int64]
    ) -> list[NDArray[np.float32]]:
        """Return the rows of chosen items; item i owns ``offsets[i]:offsets[i + 1]``."""
        begin, end = offsets[items], offsets[items + 1]
        lengths = end - begin
        # Row numbers of all items in one go: count up, restarting at each item's first row.
        chosen = np.arange(lengths.sum()) + np.repeat(
            begin - (np.cumsum(lengths) - lengths), lengths
        )
        return [part.numpy() for part in torch.split(self.decode(chosen), lengths.tolist())]
