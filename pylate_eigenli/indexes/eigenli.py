"""EigenLIIndex: a PyLate index that keeps one small subspace per document."""

from __future__ import annotations

from collections import Counter

import numpy as np
from typing_extensions import Unpack

from ..vectors.rows import RowDtype
from .base import DocumentIndex
from .codecs import SubspaceCodec
from .exact_search import ExactSearch
from .local_documents import LocalDocuments
from .settings import Settings, SpectralOptions

_DEFAULT_MEMORY = 1 << 30


class EigenLIIndex(DocumentIndex[Settings, SubspaceCodec]):
    """Index of document subspaces, searched exactly; takes the place of ``pylate.indexes.PLAID``.

    A document's token vectors are replaced by the k leading eigenvectors of their second moment.
    A query scores how much of its tokens lies in that subspace. There is nothing to train: a
    document is compressed on its own, so adding, replacing and removing are cheap and exact.

    Any number of processes can read an index while one writes it. Every change is atomic: a
    process that is killed leaves the index as it was before the change or as it is after it.

    Parameters
    ----------
    index_folder
        The folder where indexes are stored.
    index_name
        The name of this index, a folder inside ``index_folder``.
    override
        Whether the first change replaces all that the index holds. Until then the old documents
        stay on disk, whatever fails.
    k
        Number of directions kept per document, at most d. By default 32, or d if that is less; an
        index that exists keeps its own, and asking it for another one is an error.
    dtype
        How the directions are stored: ``"float32"``, ``"float16"`` (the default) or ``"int8"``.
        An index that exists keeps its own.
    short_documents
        What a document of rank r < k gets for the directions it lacks: ``"fill"`` (the default)
        credits their expected share of a query, ``"truncate"`` nothing. An index that exists
        keeps its own.
    preset
        A name for a set of the options below. ``"auto"``, the default of a new index unless one of
        them is given, is ``"plus"`` if the first batch of documents confirms that it finds what
        MaxSim finds, see :attr:`calibration`, and ``"paper"`` if the batch is too small to tell.
        ``"plus"`` standardises tokens, weighs directions by ``"ridge"`` and subtracts 0.75 of the
        background. ``"paper"`` is the score of the paper, and what the options below default to.
    filter
        How much the directions of a document count: ``"hard"`` (the default), ``"soft"``,
        ``"soft(<tau>)"``, ``"ridge"``, ``"ridge(<tokens>)"`` or ``"energy(<share>)"``. See
        :mod:`pylate_eigenli.spectral.filters`.
    centering
        ``"both"`` subtracts from the tokens of each document and each query their mean,
        ``"documents"`` only from those of documents; ``"none"`` is the default.
    corpus_mean
        Subtracted from all tokens, of documents and of queries, for instance
        ``analyze(documents_embeddings).mean``. Shape: (d,). By default nothing is.
    standardise
        Whether to remove the mean token of the collection from documents and that of queries from
        queries, see :mod:`pylate_eigenli.spectral.standardise`. By default not.
    idf, background
        What searches do unless they say otherwise, see :meth:`__call__`. By default 0, or what the
        index was made with.
    device
        Where to compress documents, ``"cpu"`` or ``"cuda"``. By default where embeddings are given.
    show_progress
        Whether to show a progress bar while documents are added.
    memory_limit
        Bytes of memory that searching may use to speed up the scan; d (d + 1) / 2 bytes per
        document, 8 KB for d = 128, are used while they last. Documents beyond are searched too,
        only slower.

    Options of PyLate's other indexes are errors that say what to use instead.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> index = EigenLIIndex(index_folder=tempfile.mkdtemp(), k=2, show_progress=False)
    >>> documents = torch.eye(8).reshape(2, 4, 8)
    >>> index = index.add_documents(["first", "second"], documents)
    >>> results = index(documents[1], k=1)
    >>> results[0][0]["id"]
    'second'
    >>> len(index), "first" in index
    (2, True)
    """

    kind = "eigenli"
    settings_type = Settings
    codec_type = SubspaceCodec

    def __init__(
        self,
        index_folder: str = "indexes",
        index_name: str = "eigenli",
        override: bool = False,
        *,
        dtype: RowDtype | None = None,
        device: str | None = None,
        show_progress: bool = True,
        memory_limit: int = _DEFAULT_MEMORY,
        **options: Unpack[SpectralOptions],
    ) -> None:
        if memory_limit < 0:
            raise ValueError(f"memory_limit must not be negative, got {memory_limit}")
        super().__init__(
            index_folder, index_name, override, options, device, show_progress, dtype=dtype
        )
        searcher = ExactSearch(memory_limit)
        self._documents = LocalDocuments(self._collection, searcher)

    def ranks(self) -> dict[int, int]:
        """Return the number of documents by their number of directions, ascending."""
        ranks: Counter[int] = Counter()
        for segment in self._snapshot.segments:
            ranks.update(np.diff(segment.offsets)[segment.alive].tolist())
        return dict(sorted(ranks.items()))
