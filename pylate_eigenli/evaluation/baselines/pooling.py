"""Pooling: token vectors are clustered, and the k normalised means replace them.

Pooled documents are scored by MaxSim. The clusters come from scikit-learn's k-means (k-means++
seeding, one start) or from SciPy's Ward linkage on Euclidean distances, cut into k. A document with
at most k tokens is not changed.

PyLate pools by Ward linkage too (``ColBERT.pool_embeddings_hierarchical``), with these differences:

- PyLate makes ``tokens // f`` clusters for a factor f; here the number k is given.
- PyLate keeps the first tokens of a document (by default one) as they are; here all are pooled.
- PyLate passes 1 - cosine to the linkage as the distance. For unit vectors that is half of the
  *squared* Euclidean distance, so its merges are not those that increase the variance least.
- PyLate does not normalise the means, so loose clusters score lower than tight ones.

Both give the same clusters if no token is protected, f = tokens / k, and the document consists of k
well-separated groups.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from ...errors import check_positive
from ...spectral.kernels.threads import for_ranges
from ...tokens import TokenBatch, offsets_of

_DOCUMENTS_PER_TASK = 8


def pool_ward(documents: TokenBatch, k: int) -> TokenBatch:
    """Pool documents by Ward's hierarchical clustering to at most k unit vectors, on the CPU.

    Repeated tokens make merges tie. The tree can then not be cut into exactly k clusters, and the
    document gets fewer.

    Examples
    --------
    >>> from pylate_eigenli.tokens import collect
    >>> documents = collect([[[1.0, 0.0], [0.96, 0.28], [0.0, 1.0]], [[0.0, 1.0]]])
    >>> pooled = pool_ward(documents, k=2)
    >>> pooled.lengths.tolist()
    [2, 1]
    >>> pooled.tokens[0]
    tensor([0.9899, 0.1414])
    """

    def ward(tokens: NDArray[Any]) -> NDArray[Any]:
        return fcluster(linkage(tokens, method="ward"), k, criterion="maxclust")

    return _pool(documents, k, ward)


def pool_kmeans(documents: TokenBatch, k: int, *, seed: int = 0) -> TokenBatch:
    """Pool documents by k-means to at most k unit vectors; fewer for fewer distinct tokens.

    Every document gets the same seed, so that its vectors do not depend on other documents.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    def kmeans(tokens: NDArray[Any]) -> NDArray[Any]:
        model = KMeans(n_clusters=k, init="k-means++", n_init=1, random_state=seed)
        labels: NDArray[Any] = model.fit(tokens).labels_
        return labels

    with warnings.catch_warnings():
        # Documents with fewer than k distinct tokens raise it, and are fine.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return _pool(documents, k, kmeans)


def unit_means(tokens: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
    """Return the normalised mean of the tokens (n, d) of every cluster, by ascending label."""
    order = np.argsort(labels, kind="stable")
    starts = np.unique(labels[order], return_index=True)[1]
    means = np.add.reduceat(tokens[order], starts, axis=0, dtype=np.float64)
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    # Tokens that cancel out have no mean direction: the first one represents the cluster.
    means = np.where(norms > 0, means, tokens[order[starts]])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    return means.astype(tokens.dtype)


def _pool(
    documents: TokenBatch, k: int, cluster: Callable[[NDArray[Any]], NDArray[Any]]
) -> TokenBatch:
    """Pool documents with more than k tokens by the clusters that ``cluster`` finds."""
    check_positive(k=k)
    items = [tokens.numpy() for tokens in TokenBatch(documents.tokens.cpu(), documents.offsets)]
    # Several BLAS or OpenMP threads per small matrix would slow each other down. BLAS threads are
    # limited for the process, OpenMP threads by each thread for itself.
    threads = ThreadpoolController()

    def task(part: slice) -> None:
        with threads.limit(limits=1, user_api="openmp"):
            for i in range(part.start, part.stop):
                if len(items[i]) > k:
                    items[i] = unit_means(items[i], cluster(items[i]))

    with threads.limit(limits=1, user_api="blas"):
        for_ranges(task, len(items), _DOCUMENTS_PER_TASK)
    return TokenBatch(torch.from_numpy(np.concatenate(items)), offsets_of(list(map(len, items))))
