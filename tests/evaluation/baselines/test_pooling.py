from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_info

from pylate_eigenli.evaluation.baselines import pool_kmeans, pool_ward
from pylate_eigenli.evaluation.baselines.pooling import unit_means
from pylate_eigenli.tokens import collect

POOLS = pytest.mark.parametrize("pool", [pool_ward, pool_kmeans])


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def random_document(rng, m, d=16):
    return unit(rng.standard_normal((m, d))).astype(np.float32)


def groups(rng, k, size, d=16, spread=0.05):
    """Return k tight groups around orthogonal directions, shuffled, and the group of each token."""
    labels = rng.permutation(np.repeat(np.arange(k), size))
    tokens = np.eye(d)[labels] + spread * rng.standard_normal((k * size, d))
    return unit(tokens).astype(np.float32), labels


def sorted_rows(x):
    x = np.asarray(x)
    return x[np.lexsort(x.round(3).T)]


@pytest.fixture
def pylate_pool(pylate):
    """PyLate's own pooling, which needs no model."""
    pool = pylate.models.ColBERT.pool_embeddings_hierarchical

    def pooled(document, **options):
        return pool(None, [torch.from_numpy(document)], **options)[0].numpy()

    return pooled


class TestPooling:
    @POOLS
    @settings(max_examples=20, deadline=None)
    @given(
        seed=st.integers(0, 2**32 - 1),
        lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12),
        k=st.integers(1, 20),
    )
    def test_every_document_gets_at_most_k_unit_vectors(self, pool, seed, lengths, k):
        rng = np.random.default_rng(seed)
        documents = [random_document(rng, m) for m in lengths]
        pooled = pool(collect(documents), k)
        assert pooled.lengths.tolist() == [min(m, k) for m in lengths]
        np.testing.assert_allclose(torch.linalg.vector_norm(pooled.tokens, dim=1), 1, atol=1e-5)

    @POOLS
    def test_documents_of_at_most_k_tokens_are_left_as_they_are(self, pool):
        rng = np.random.default_rng(0)
        documents = [2 * random_document(rng, 5), random_document(rng, 9), random_document(rng, 4)]
        pooled = list(pool(collect(documents), 5))
        np.testing.assert_array_equal(pooled[0], documents[0])
        np.testing.assert_array_equal(pooled[2], documents[2])
        assert len(pooled[1]) == 5

    @POOLS
    def test_tight_groups_become_their_mean_directions(self, pool):
        tokens, labels = groups(np.random.default_rng(1), k=6, size=7)
        expected = unit(np.stack([tokens[labels == i].mean(0) for i in range(6)]))
        pooled = pool(collect([tokens]), 6)
        np.testing.assert_allclose(sorted_rows(pooled.tokens), sorted_rows(expected), atol=1e-6)

    @POOLS
    def test_documents_do_not_depend_on_those_beside_them(self, pool):
        rng = np.random.default_rng(2)
        documents = [random_document(rng, int(m)) for m in rng.integers(1, 60, 40)]
        for document, expected in zip(documents, pool(collect(documents), 8), strict=True):
            np.testing.assert_array_equal(pool(collect([document]), 8).tokens, expected)

    @POOLS
    def test_padding_is_ignored(self, pool):
        document = random_document(np.random.default_rng(3), 20)
        padded = np.zeros((1, 33, 16), np.float32)
        padded[0, 5:25] = document
        expected = pool(collect([document]), 4).tokens
        np.testing.assert_array_equal(pool(collect(padded), 4).tokens, expected)

    @POOLS
    def test_repeated_tokens_are_kept_once_and_without_a_warning(self, pool):
        distinct = np.eye(4, dtype=np.float32)[:3]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pooled = pool(collect([np.tile(distinct, (5, 1))]), 8)
        np.testing.assert_array_equal(sorted_rows(pooled.tokens), sorted_rows(distinct))

    @POOLS
    def test_tokens_that_cancel_still_leave_a_direction(self, pool):
        east = np.array([[1.0, 0.0], [-1.0, 0.0]], np.float32)
        np.testing.assert_array_equal(pool(collect([east]), 1).tokens, east[:1])

    @POOLS
    def test_double_precision_stays(self, pool):
        document = random_document(np.random.default_rng(4), 20)
        pooled = pool(collect([document], dtype=torch.float64), 4)
        assert pooled.tokens.dtype == torch.float64
        np.testing.assert_allclose(torch.linalg.vector_norm(pooled.tokens, dim=1), 1, atol=1e-14)

    @POOLS
    @pytest.mark.parametrize("k", [0, -1, 2.5])
    def test_an_impossible_budget_is_refused(self, pool, k):
        with pytest.raises(ValueError, match="k must be a positive integer"):
            pool(collect([np.eye(4)]), k)

    @POOLS
    def test_thread_limits_of_the_process_are_as_before(self, pool):
        before = threadpool_info()
        pool(collect([random_document(np.random.default_rng(5), 30)] * 20), 8)
        assert [x["num_threads"] for x in threadpool_info()] == [x["num_threads"] for x in before]


class TestKMeans:
    def test_clusters_are_scikit_learns(self):
        document = random_document(np.random.default_rng(6), 80)
        model = KMeans(10, init="k-means++", n_init=1, random_state=7).fit(document)
        # Normalised centres are normalised means: a cluster's centre is its mean.
        pooled = pool_kmeans(collect([document]), 10, seed=7)
        np.testing.assert_allclose(
            sorted_rows(pooled.tokens), sorted_rows(unit(model.cluster_centers_)), atol=1e-3
        )

    def test_seeds_make_a_difference_that_can_be_repeated(self):
        batch = collect([random_document(np.random.default_rng(7), 80)])
        first, again, other = (pool_kmeans(batch, 10, seed=seed).tokens for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


class TestWard:
    def test_clusters_are_scipys(self):
        document = random_document(np.random.default_rng(8), 80)
        labels = fcluster(linkage(document, "ward"), 10, "maxclust")
        expected = unit(np.stack([document[labels == i].mean(0) for i in range(1, 11)]))
        np.testing.assert_allclose(pool_ward(collect([document]), 10).tokens, expected, atol=1e-6)


class TestWardBesidePyLates:
    """What `pooling` says of ``ColBERT.pool_embeddings_hierarchical``."""

    def test_both_find_groups_that_are_tighter_than_apart(self, pylate_pool):
        document, _ = groups(np.random.default_rng(9), k=8, size=6)
        theirs = pylate_pool(document, pool_factor=6, protected_tokens=0)
        ours = pool_ward(collect([document]), 8).tokens
        assert (np.linalg.norm(theirs, axis=1) < 0.999).all()
        np.testing.assert_allclose(sorted_rows(ours), sorted_rows(unit(theirs)), atol=1e-6)

    def test_a_single_cluster_is_the_mean_in_both(self, pylate_pool):
        document = random_document(np.random.default_rng(10), 30)
        theirs = pylate_pool(document, pool_factor=30, protected_tokens=0)
        ours = pool_ward(collect([document]), 1).tokens
        np.testing.assert_allclose(ours, unit(theirs), atol=1e-6)

    def test_protected_tokens_are_kept_in_front_of_the_rest(self, pylate_pool):
        document, _ = groups(np.random.default_rng(11), k=8, size=6)
        theirs = pylate_pool(np.concatenate([document[:1], document]), pool_factor=6)
        np.testing.assert_array_equal(theirs[0], document[0])
        ours = pool_ward(collect([document]), 8).tokens
        np.testing.assert_allclose(sorted_rows(ours), sorted_rows(unit(theirs[1:])), atol=1e-6)

    def test_otherwise_they_differ_by_the_distance_only(self, pylate_pool):
        document = random_document(np.random.default_rng(12), 80)
        theirs = unit(pylate_pool(document, pool_factor=10, protected_tokens=0))
        cosines = document @ document.T
        one_minus_cosine = (1 - cosines)[np.triu_indices(80, 1)]
        labels = fcluster(linkage(one_minus_cosine, "ward"), 8, "maxclust")
        np.testing.assert_allclose(theirs, unit_means(document, labels), atol=1e-6)

        euclidean = np.sqrt(np.maximum(2 * one_minus_cosine.astype(np.float64), 0))
        labels = fcluster(linkage(euclidean, "ward"), 8, "maxclust")
        ours = pool_ward(collect([document]), 8).tokens
        np.testing.assert_allclose(ours, unit_means(document, labels), atol=1e-6)
        assert not np.allclose(sorted_rows(ours), sorted_rows(theirs), atol=1e-2)
