"""Encoded documents on disk: one ``.npz`` file per part, without pickle, replaced atomically.

What a method makes of documents is an array or a dataclass of arrays, tensors, numbers and other
such dataclasses. Arrays are entries of the file; how they make up the object is JSON beside them.
"""

from __future__ import annotations

import io
import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..spectral.subspace import Subspaces
from ..storage.disk import replace_file
from ..tokens import TokenBatch
from ..vectors.axis_codes import AxisCodes
from ..vectors.quantization import Codes

_TYPES: dict[str, type] = {cls.__name__: cls for cls in (TokenBatch, Subspaces, Codes, AxisCodes)}
_LAYOUT = "layout"


class StoredParts:
    """Encoded documents by key, each in a file of its own.

    Parameters
    ----------
    folder
        Made if there is none.

    Examples
    --------
    >>> import tempfile
    >>> from pylate_eigenli.tokens import collect
    >>> parts = StoredParts(tempfile.mkdtemp())
    >>> parts["first"] = collect([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> "first" in parts, parts["first"].lengths.tolist()
    (True, [1, 1])
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def __contains__(self, key: object) -> bool:
        return self._path(key).is_file()

    def __getitem__(self, key: str) -> Any:
        with np.load(self._path(key)) as file:
            return _build(json.loads(file[_LAYOUT].tobytes()), file)

    def __setitem__(self, key: str, documents: Any) -> None:
        arrays: dict[str, NDArray[Any]] = {}
        layout = json.dumps(_lay_out(documents, "documents", arrays))
        arrays[_LAYOUT] = np.frombuffer(layout.encode(), np.uint8)
        payload = io.BytesIO()
        np.savez(payload, **arrays)  # type: ignore[arg-type]
        replace_file(self._path(key), payload.getvalue())

    def _path(self, key: object) -> Path:
        return self.folder / f"{key}.npz"


def _lay_out(value: Any, name: str, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Enter the arrays of an object and return how it is made of them."""
    if isinstance(value, torch.Tensor):
        arrays[name] = value.cpu().numpy()
        return {"tensor": name}
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if is_dataclass(value) and type(value).__name__ in _TYPES:
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
        return {
            "type": type(value).__name__,
            "fields": {part: _lay_out(v, f"{name}.{part}", arrays) for part, v in parts.items()},
        }
    if value is None or isinstance(value, (int, float, str)):
        return {"value": value}
    raise TypeError(f"{name}: a {type(value).__name__} cannot be stored; enter it in _TYPES")


def _build(layout: dict[str, Any], arrays: Any) -> Any:
    match layout:
        case {"tensor": name}:
            return torch.from_numpy(arrays[name])
        case {"array": name}:
            return arrays[name]
        case {"type": name, "fields": parts}:
            return _TYPES[name](**{part: _build(v, arrays) for part, v in parts.items()})
    return layout["value"]
