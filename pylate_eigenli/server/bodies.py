"""Bodies of requests as models, and models as bytes between the server and its child process."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from . import schemas


def parse(model: str, body: bytes) -> BaseModel:
    """Return a model of :mod:`.schemas` from JSON.

    Raises
    ------
    ValueError
        What is wrong with the body, in one line.

    Examples
    --------
    >>> parse("RemoveRequest", b'{"ids": ["a", 7]}')
    RemoveRequest(ids=['a', 7])
    """
    kind: type[BaseModel] = getattr(schemas, model)
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        # Without the input, which may be huge.
        (first, *_) = error.errors(include_url=False, include_input=False)
        raise ValueError(described({**first, "loc": ("body", *first["loc"])})) from None


def described(error: Any) -> str:
    """Return what is wrong with a body in one line, from an error of pydantic."""
    if error["type"] == "json_invalid":
        return f"the body is not JSON: {error['ctx']['error']}"
    return f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"


class Answers:
    """What the child process answers, see :class:`pylate_eigenli.corpus.sandbox.Sandbox`."""

    def parse(self, body: bytes, model: str) -> tuple[dict[str, Any], bytes]:
        """Return a model as the length of a text, and the text followed by matrices."""
        matrices: list[bytes] = []

        def packed(value: Any) -> dict[str, Any]:
            if isinstance(value, BaseModel):
                return {"model": type(value).__name__, "fields": vars(value)}
            matrices.append(value.tobytes())
            return {"shape": value.shape}

        text = json.dumps(parse(model, body), default=packed).encode()
        return {"text": len(text)}, b"".join([text, *matrices])


def unpacked(header: dict[str, Any], answer: bytes) -> Any:
    """Return the model that the child process has parsed and checked."""
    position = header["text"]

    def value(packed: dict[str, Any]) -> Any:
        nonlocal position
        if "model" in packed:
            return getattr(schemas, packed["model"]).model_construct(**packed["fields"])
        if "shape" not in packed:
            return packed
        rows, dim = packed["shape"]
        matrix = np.frombuffer(answer, np.float32, rows * dim, position).reshape(rows, dim)
        position += matrix.nbytes
        return matrix.copy()  # which can be written to

    return json.loads(answer[:position], object_hook=value)
