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
    where = ".".join(str(part) for part in error["loc"])
    return f"{where}: {error['msg'].removeprefix('Value error, ')}"


class Answers:
    """What the child process answers, see :class:`pylate_eigenli.corpus.sandbox.Sandbox`."""

    def parse(self, body: bytes, model: str) -> tuple[dict[str, Any], bytes]:
        """Return a model as the length of a text, and the text followed by matrices."""
        matrices: list[bytes] = []

        def packed(value: Any) -> dict[str, Any]:
            if isinstance(value, BaseModel):
                fields = {
                    # A dictionary of the client must not pass for one of these.
                    name: {"plain": field} if isinstance(field, dict) else field
                    for name, field in vars(value).items()
                }
                return {"model": type(value).__name__, "fields": fields}
            matrices.append(value.tobytes())
            return {"shape": value.shape}

        text = json.dumps(parse(model, body), default=packed).encode()
        return {"text": len(text)}, b"".join([text, *matrices])


def unpacked(header: dict[str, Any], answer: bytes) -> Any:
    """Return the model that the child process has parsed and checked."""
    position = header["text"]

    def value(packed: Any) -> Any:
        nonlocal position
        if isinstance(packed, list):
            return [value(item) for item in packed]
        if not isinstance(packed, dict):
            return packed
        if "plain" in packed:
            return packed["plain"]
        if "model" in packed:
            fields = {name: value(field) for name, field in packed["fields"].items()}
            return getattr(schemas, packed["model"]).model_construct(**fields)
        rows, dim = packed["shape"]
        matrix = np.frombuffer(answer, np.float32, rows * dim, position).reshape(rows, dim)
        position += matrix.nbytes
        return matrix.copy()  # which can be written to

    return value(json.loads(answer[:position]))
