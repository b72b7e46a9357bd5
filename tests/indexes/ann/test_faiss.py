"""What only the faiss backend has to get right."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import N, best, packed_documents, packed_queries, recall

from pylate_eigenli.indexes.ann import make
from pylate_eigenli.indexes.ann.faiss import FaissBackend, FaissOptions, default_factory

faiss = pytest.importorskip("faiss")


@pytest.mark.parametrize("factory", ["nonsense", "", "IVF16,nonsense", "PQ7"])
def test_factory_strings_that_faiss_refuses_are_named(factory: str):
    with pytest.raises(ValueError, match=f"faiss cannot make {factory!r} for 300 dimensions"):
        FaissBackend(300, N, FaissOptions(factory=factory))


def test_too_few_vectors_to_train_on_are_refused():
    backend = FaissBackend(300, N, FaissOptions(factory="IVF64,Flat"))
    with pytest.raises(ValueError, match="'IVF64,Flat' on 10 vectors"):
        backend.train(packed_documents()[:10])


def test_the_sample_grows_with_what_is_to_be_learnt():
    sizes = [
        make("faiss", 300, options={"factory": factory}).sample_size
        for factory in ("Flat", "SQ8", "IVF16,Flat", "IVF1024,Flat", "PCA32,IVF1024,Flat")
    ]
    assert sizes[0] == 0
    assert 0 < sizes[1] == sizes[2] < sizes[3] == sizes[4]


def test_the_default_changes_with_the_size():
    assert default_factory(100) == "Flat"
    backend = FaissBackend(300, 100, FaissOptions())
    assert backend.sample_size == 0
    assert not backend.outgrown(5000)
    assert backend.outgrown(1_000_000)
    assert FaissBackend(300, 1_000_000, FaissOptions()).sample_size > 0
    assert not FaissBackend(300, 100, FaissOptions(factory="Flat")).outgrown(1_000_000)


def test_the_factory_outlives_a_change_of_the_default():
    data = FaissBackend(300, 1_000_000, FaissOptions()).to_bytes()
    loaded = FaissBackend.from_bytes(data, FaissOptions())
    assert not loaded.outgrown(1_000_000)
    assert loaded.outgrown(100)


def test_options_of_searching_can_be_changed_when_loading():
    vectors, true = packed_documents(), best(packed_queries(), packed_documents(), 10)
    backend = FaissBackend(300, N, FaissOptions(factory="IVF32,Flat"))
    backend.train(vectors)
    backend.add(np.arange(N), vectors)
    recalls = [
        recall(
            FaissBackend.from_bytes(backend.to_bytes(), options).search(packed_queries(), 10)[0],
            true,
        )
        for options in (FaissOptions(nprobe=1), FaissOptions(), FaissOptions(nprobe=32))
    ]
    assert recalls[0] < recalls[1] < recalls[2] == 1


@pytest.mark.parametrize(
    "factory", ["PCA64,Flat", "PCA64,IVF8,SQ8", "IDMap,Flat", "IVF8,SQ8,RFlat"]
)
def test_composed_indexes_keep_labels(factory: str):
    vectors, labels = packed_documents(), np.arange(N) * 5 + 3
    backend = FaissBackend(300, N, FaissOptions(factory=factory, nprobe=8))
    if backend.sample_size:
        backend.train(vectors)
    backend.add(labels, vectors)
    found, _ = backend.search(vectors[:20], 5)
    assert np.isin(found, labels).all()
    np.testing.assert_array_equal(found[:, 0], labels[:20])
    assert len(backend) == N
