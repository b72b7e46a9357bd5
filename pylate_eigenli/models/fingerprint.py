"""Fingerprints: short strings that change whenever the embeddings of a model may change."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

_HASHED_BYTES = 1 << 20  # of each end of a file: weights can have many gigabytes
# Attributes of PyLate's and this library's models that change the embeddings.
_SETTINGS = [
    "query_prefix",
    "document_prefix",
    "query_length",
    "document_length",
    "do_query_expansion",
    "attend_to_expansion_tokens",
    "skiplist_words",
    "prompts",
    "default_prompt_name",
    "dtype",
    "revision",
    "max_visual_tokens",
    "image_tokens_only",
]


def fingerprint(model: Any, name: str = "") -> str:
    """Return the fingerprint of all weights and settings of a loaded model.

    The model is one of PyLate or of torch, or has one as its attribute ``model``. For others, the
    name or path stands for the weights.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(2, 3)
    >>> before = fingerprint(layer)
    >>> layer.query_length = 48
    >>> fingerprint(layer) == before
    False
    """
    inner: Any = model if hasattr(model, "state_dict") else getattr(model, "model", None)
    settings = [str(getattr(model, x, getattr(inner, x, None))) for x in _SETTINGS]
    # The modules of sentence-transformers have settings of their own. PyLate, whose settings are
    # above, changes those of its modules with every call.
    has_modules = hasattr(inner, "children") and not hasattr(inner, "query_length")
    modules = inner.children() if has_modules else ()
    settings += [str(x.get_config_dict()) for x in modules if hasattr(x, "get_config_dict")]
    digest = hashlib.sha256(json.dumps(settings).encode())
    if hasattr(inner, "state_dict"):
        import torch

        for key, weight in inner.state_dict().items():
            if isinstance(weight, torch.Tensor):
                digest.update(f"{key}\0{weight.dtype}\0{list(weight.shape)}\0".encode())
                digest.update(weight.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    else:
        digest.update(f"{name}\0{fingerprint_of(name)}".encode())
    return digest.hexdigest()[:16]


def fingerprint_of(name: str) -> str:
    """Return a string that changes with the files of a model; empty if they are not here.

    It is the commit of a model of the Hub. Of a folder it is a hash of the names, sizes and
    contents of its files, without hidden ones and Markdown; of large files, only both ends are
    read.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "config.json").write_text("{}")
    >>> fingerprint_of(str(folder)), fingerprint_of("nobody/has-such-a-model")
    ('555dc36908b373a3', '')
    """
    folder = Path(name)
    if not name or not folder.is_dir():
        return _commit_of(name)
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        parts = path.relative_to(folder).parts
        if path.suffix == ".md" or any(part.startswith(".") for part in parts):
            continue
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(_HASHED_BYTES))
            file.seek(max(_HASHED_BYTES, size - _HASHED_BYTES))
            digest.update(file.read())
    return digest.hexdigest()[:16]


def _commit_of(name: str) -> str:
    """Return the commit of a model that was downloaded from the Hub; empty if none was."""
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:  # it comes with the libraries for models
        return ""
    try:
        file = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return ""
    return Path(file).parent.name if isinstance(file, str) else ""
