"""The border of the package: every form of token embeddings becomes a :class:`TokenBatch`.

This module alone handles shapes, dtypes, devices, masks, padding and bad values. In a
:class:`TokenBatch` every token is a finite, non-zero row, and every item has at least one token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

LONGEST_QUERY_TOKEN = 1e7
"""The square of the score of a query of 10,000 such tokens is still a float32."""


def offsets_of(lengths: ArrayLike) -> NDArray[np.int64]:
    """Return the offsets of consecutive items: the start of each item, and the end of the last.

    Examples
    --------
    >>> offsets_of([2, 0, 3])
    array([0, 2, 2, 5])
    """
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


@dataclass(frozen=True)
class TokenBatch:
    """Token vectors of several documents or queries, concatenated.

    Parameters
    ----------
    tokens
        Token vectors of all items. Shape: (tokens, d), float32 or float64, contiguous.
    offsets
        Item i owns the rows ``offsets[i]:offsets[i + 1]``. Shape: (items + 1,), int64.
    """

    tokens: Tensor
    offsets: np.ndarray[Any, np.dtype[np.int64]]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Tensor]:
        for begin, end in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            yield self.tokens[begin:end]

    def centred(self) -> TokenBatch:
        """Subtract from each token the mean of its item, without normalising the result.

        A result within the rounding error of its token becomes zero, so that an item of equal
        tokens has no direction.
        """
        left = self.tokens - self.means()[self.owners]
        noise = 8 * torch.finfo(left.dtype).eps * torch.linalg.vector_norm(self.tokens, dim=1)
        keep = torch.linalg.vector_norm(left, dim=1) > noise
        return TokenBatch(left * keep[:, None], self.offsets)

    def means(self) -> Tensor:
        """Return the mean token of each item. Shape: (items, d)."""
        sums = np.add.reduceat(self.tokens.double().cpu().numpy(), self.offsets[:-1])
        return torch.from_numpy(sums / self.lengths[:, None]).to(self.tokens)

    def energies(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the sum of the squared lengths of each item's tokens. Shape: (items,)."""
        squares = torch.linalg.vector_norm(self.tokens, dim=1).double().square()
        return np.asarray(np.add.reduceat(squares.cpu().numpy(), self.offsets[:-1]))

    def chosen(self, items: Iterable[int]) -> TokenBatch:
        """Return some of the items."""
        parts = [self.tokens[self.offsets[item] : self.offsets[item + 1]] for item in items]
        tokens = torch.cat(parts) if parts else self.tokens[:0]
        return TokenBatch(tokens, offsets_of([len(part) for part in parts]))

    @property
    def owners(self) -> Tensor:
        """The item of each token. Shape: (tokens,), int64."""
        return torch.repeat_interleave(torch.from_numpy(self.lengths)).to(self.tokens.device)

    @property
    def dim(self) -> int:
        return self.tokens.shape[1]

    @property
    def lengths(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.diff(self.offsets)


def _as_tensor(item: Any, name: str) -> Tensor:
    """Convert one array-like to a tensor, if possible without a copy."""
    if isinstance(item, Tensor):
        return item.detach()
    try:
        if isinstance(item, np.ndarray):
            # A tensor cannot view a read-only array or negative strides, so those are copied.
            plain = item.flags.writeable and item.flags.c_contiguous
            return torch.from_numpy(item if plain else item.copy())
        if isinstance(item, Sequence) and len(item) > 0 and isinstance(item[0], Tensor):
            return torch.stack([row.detach() for row in item])
        return torch.from_numpy(np.asarray(item, dtype=np.float32))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is not a matrix of token vectors: {error}") from error


def split_items(embeddings: Any) -> Iterable[Any]:
    """Return the items of a batch, as in PyLate: a single 2-D array is one item."""
    if isinstance(embeddings, (np.ndarray, Tensor)):
        if embeddings.ndim == 2:
            return [embeddings]
        if embeddings.ndim != 3:
            raise ValueError(
                "embeddings must be 2-D (one item), 3-D (a padded batch) or a list of 2-D "
                f"arrays, not {embeddings.ndim}-D"
            )
    elif isinstance(embeddings, Sequence) and len(embeddings) > 0 and _is_token_list(embeddings):
        return [embeddings]
    return embeddings  # type: ignore[no-any-return]


def _is_token_list(embeddings: Sequence[Any]) -> bool:
    """Return whether a list holds the tokens of one item, not several items."""
    first = embeddings[0]
    if isinstance(first, (np.ndarray, Tensor)):
        return first.ndim == 1
    return isinstance(first, Sequence) and len(first) > 0 and isinstance(first[0], (int, float))


def collect(
    embeddings: Any,
    *,
    mask: Any = None,
    dim: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device | None = None,
    names: Sequence[str] | str = "document",
    longest: float = float(np.finfo(np.float32).max),
) -> TokenBatch:
    """Convert embeddings of any accepted form to a :class:`TokenBatch`.

    Parameters
    ----------
    embeddings
        A list (or other iterable) of (tokens, d) arrays, tensors or nested lists, a padded 3-D
        array or tensor, or one 2-D array or tensor for a single item. Zero rows are padding.
    mask
        Tokens to keep, only for padded 3-D embeddings. Shape: (items, tokens).
    dim
        Expected dimension d. By default the dimension of the first item.
    dtype
        Dtype of the result.
    device
        Device of the result. By default the device of the first item.
    names
        Names of the items in error messages: a list of names, or a noun to which the number of
        the item is appended.
    longest
        Length that no token may exceed.

    Examples
    --------
    >>> import numpy as np
    >>> batch = collect([np.eye(3, dtype=np.float16), [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]])
    >>> batch.lengths.tolist(), batch.tokens.dtype
    ([3, 1], torch.float32)
    """

    def name(i: int) -> str:
        return f"{names} {i}" if isinstance(names, str) else names[i]

    if isinstance(embeddings, Tensor) and embeddings.ndim == 3 and mask is None:
        whole = _collect_padded(embeddings, dim, dtype, device)
        if whole is not None:
            return _drop_padding(whole, name, longest)
    items = list(split_items(embeddings))
    if not items:
        noun = names if isinstance(names, str) else "document"
        raise ValueError(f"no {noun} was given: the list of embeddings is empty")
    keep = None if mask is None else _split_mask(mask, len(items))
    rows: list[Tensor] = []
    for i, item in enumerate(items):
        matrix = _as_tensor(item, name(i))
        if matrix.ndim != 2:
            raise ValueError(
                f"{name(i)}: expected a (tokens, d) matrix, got shape {tuple(matrix.shape)}"
            )
        if matrix.shape[0] == 0:
            raise ValueError(f"{name(i)} has no tokens")
        dim = matrix.shape[1] if dim is None else dim
        if matrix.shape[1] != dim or dim == 0:
            raise ValueError(f"{name(i)} has dimension {matrix.shape[1]}, expected {dim}")
        if keep is not None:
            if keep[i].shape[0] != matrix.shape[0]:
                raise ValueError(
                    f"{name(i)} has {matrix.shape[0]} tokens, but its mask has {keep[i].shape[0]}"
                )
            matrix = matrix[keep[i].to(matrix.device)]
        rows.append(matrix.to(device=device or rows[0].device if rows else device, dtype=dtype))

    batch = TokenBatch(torch.cat(rows), offsets_of([len(row) for row in rows]))
    return _drop_padding(batch, name, longest)


def _collect_padded(
    embeddings: Tensor, dim: int | None, dtype: torch.dtype, device: str | torch.device | None
) -> TokenBatch | None:
    """Return a 3-D batch without a copy, or None if its shape is invalid."""
    n, length, width = embeddings.shape
    if not n or not length or not width or width != (dim or width):
        return None
    tokens = embeddings.detach().to(device=device, dtype=dtype).reshape(n * length, width)
    return TokenBatch(tokens, np.arange(n + 1, dtype=np.int64) * length)


def _split_mask(mask: Any, n_items: int) -> list[Tensor]:
    masks = [_as_tensor(row, "mask").bool() for row in mask]
    if len(masks) != n_items:
        raise ValueError(f"the mask has {len(masks)} rows for {n_items} items")
    return masks


def place_of(row: int, offsets: NDArray[np.int64]) -> tuple[int, int]:
    """Return the item that owns a row, and the number of the row in it.

    Examples
    --------
    >>> place_of(4, np.array([0, 2, 2, 5]))
    (2, 2)
    """
    item = int(np.searchsorted(offsets, row, side="right")) - 1
    return item, row - int(offsets[item])


def _drop_padding(batch: TokenBatch, name: Any, longest: float) -> TokenBatch:
    """Remove zero rows; raise an error for bad values and items without any other row."""
    norms = torch.linalg.vector_norm(batch.tokens, dim=1)
    # The usual case needs no further inspection; comparisons with NaN are false.
    usual = ((norms > 0) & (norms <= longest)).all()
    if usual and (np.diff(batch.offsets) > 0).all():
        return batch
    values = norms.cpu().numpy()
    bad = np.flatnonzero(~(values <= longest))
    if len(bad):
        item, token = place_of(int(bad[0]), batch.offsets)
        problem = "contains NaN or infinite values"
        if np.isfinite(values[bad[0]]):
            problem = (
                f"has the length {values[bad[0]]:.3g}, more than {longest:.0e}: scores would "
                "overflow, so normalise the embeddings"
            )
        elif torch.isfinite(batch.tokens[int(bad[0])]).all():
            problem = "has a length that overflows"
        raise ValueError(f"{name(item)}: token {token} {problem}")
    valid = values > 0
    kept = offsets_of(valid)[batch.offsets]
    empty = np.flatnonzero(np.diff(kept) == 0)
    if len(empty):
        raise ValueError(f"{name(int(empty[0]))} has no tokens: all its vectors are zero or masked")
    tokens = batch.tokens[torch.from_numpy(valid).to(batch.tokens.device)]
    return TokenBatch(tokens, kept)


def pad(embeddings: Any) -> Tensor:
    """Stack (n, d) matrices to a zero-padded 3-D tensor, and keep gradients."""
    if isinstance(embeddings, Tensor):
        return embeddings
    if isinstance(embeddings, np.ndarray) and embeddings.dtype != object:
        return _as_tensor(embeddings, "embeddings")
    rows = [row if isinstance(row, Tensor) else _as_tensor(row, "item") for row in embeddings]
    shapes = {row.shape[1:] for row in rows}
    if len(shapes) != 1:
        found = ", ".join(sorted({str(tuple(row.shape)) for row in rows})) or "none"
        raise ValueError(f"expected matrices (n, d) of one d, got {found}")
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
