from __future__ import annotations

import numpy as np
import pytest

from pylate_eigenli import EigenLIIndex, EigenLISVIndex, compress, rerank
from pylate_eigenli.evaluation import methods
from pylate_eigenli.evaluation.baselines import Muvera, pool_kmeans, pool_ward
from pylate_eigenli.evaluation.methods import Method, method
from pylate_eigenli.scores.maxsim import maxsim_scores
from pylate_eigenli.spectral.settings import SpectralSettings
from pylate_eigenli.tokens import collect

NAMES = [
    "full",
    "eigenli-8",
    "eigenli-sv-8",
    "plus",
    "plus-8",
    "kmeans-8",
    "ward-8",
    "muvera",
    "muvera-centered",
]


@pytest.fixture(scope="module")
def batches():
    rng = np.random.default_rng(0)

    def items(n, longest):
        rows = [rng.standard_normal((int(m), 32)) for m in rng.integers(1, longest, n)]
        return [x / np.linalg.norm(x, axis=1, keepdims=True) for x in rows]

    return collect(items(5, 9), names="query"), collect(items(40, 60))


def run(name, queries, documents):
    m = method(name)
    encoded = m.encode_documents(documents)
    if isinstance(m, methods.RelativeMethod):
        m = m.among([encoded])
    return m.scores(m.encode_queries(queries), encoded)


class TestEveryMethod:
    @pytest.mark.parametrize("name", NAMES)
    def test_keeps_the_interface(self, name, batches):
        queries, documents = batches
        assert isinstance(method(name), Method)
        assert method(name).name == name
        scores = run(name, queries, documents)
        assert scores.shape == (5, 40)
        assert scores.dtype == np.float32
        assert np.isfinite(scores).all()

    @pytest.mark.parametrize("name", [name for name in NAMES if "plus" not in name])
    def test_may_be_given_the_corpus_in_parts(self, name, batches):
        queries, documents = batches
        items = list(documents)
        parts = [run(name, queries, collect(part)) for part in (items[:13], items[13:])]
        expected = run(name, queries, documents)
        np.testing.assert_allclose(np.hstack(parts), expected, atol=1e-4)

    def test_is_what_its_name_says(self, batches):
        queries, documents = batches
        for name, kept in (
            ("full", documents),
            ("ward-8", pool_ward(documents, 8)),
            ("kmeans-8", pool_kmeans(documents, 8)),
        ):
            np.testing.assert_array_equal(
                run(name, queries, documents), maxsim_scores(queries, kept)
            )
        for name, encoder in (("muvera", Muvera()), ("muvera-centered", Muvera(centered=True))):
            expected = encoder.encode_queries(queries) @ encoder.encode_documents(documents).T
            np.testing.assert_array_equal(run(name, queries, documents), expected)


class TestOptions:
    def test_are_settings(self):
        chosen = method("eigenli-8:filter=soft(0.01):idf=0.25:centering=both")
        assert chosen.settings == SpectralSettings(
            k=8, filter="soft(0.01)", idf=0.25, centering="both"
        )
        assert method("plus-8:background=0.5").settings.background == 0.5

    @pytest.mark.parametrize("name", ["eigenli-8:taus=1", "eigenli-8:idf", "eigenli-8:idf=x"])
    def test_that_do_not_exist_are_refused(self, name):
        with pytest.raises(ValueError, match="idf"):
            method(name)

    def test_are_only_for_subspaces(self):
        with pytest.raises(ValueError, match="ward-8 takes no options"):
            method("ward-8:idf=0.2")


class TestEigenLI:
    def test_scores_are_those_of_reranking(self, batches, monkeypatch):
        queries, documents = batches
        monkeypatch.setattr(methods, "_PACKED_AT_ONCE", 7)
        scores = run("eigenli-8", queries, documents)
        ids = list(range(len(documents)))
        results = rerank([ids] * len(queries), list(queries), [list(documents)] * len(queries), k=8)
        for row, result in zip(scores, results, strict=True):
            expected = {hit["id"]: hit["score"] for hit in result}
            np.testing.assert_allclose(row, [expected[i] for i in ids], rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "index_type", "options"),
    [
        ("eigenli-sv-8", EigenLISVIndex, {"k": 8}),
        ("plus", EigenLISVIndex, {"preset": "plus"}),
        ("plus-8", EigenLIIndex, {"preset": "plus", "k": 8}),
    ],
)
class TestIndexes:
    def test_scores_are_those_of_the_index(self, batches, tmp_path, name, index_type, options):
        queries, documents = batches
        index = index_type(str(tmp_path), show_progress=False, **options)
        ids = [str(i) for i in range(len(documents))]
        index.add_documents(ids, list(documents))
        scores = run(name, queries, documents)
        for row, result in zip(scores, index(list(queries), k=len(ids)), strict=True):
            expected = {hit["id"]: hit["score"] for hit in result}
            # As far as 8 and 16 bits go.
            np.testing.assert_allclose(row, [expected[i] for i in ids], rtol=0.06, atol=0.02)


class TestSizes:
    def test_are_those_of_what_is_kept_in_half_precision(self, batches):
        _, documents = batches
        vectors = {
            "full": documents.lengths.mean(),
            "ward-8": np.minimum(documents.lengths, 8).mean(),
            "kmeans-8": np.minimum(documents.lengths, 8).mean(),
            "eigenli-8": compress(list(documents), 8).ranks.mean(),
        }
        for name, expected in vectors.items():
            encoded = method(name).encode_documents(documents)
            assert method(name).nbytes_per_document(encoded) == pytest.approx(2 * 32 * expected)
        encoded = method("muvera").encode_documents(documents)
        assert method("muvera").nbytes_per_document(encoded) == 2 * 10240
        encoded = method("eigenli-sv-8").encode_documents(documents)
        assert method("eigenli-sv-8").nbytes_per_document(encoded) == 32 * 33 // 2 + 8


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            "",
            "fully",
            "ward",
            "ward-",
            "ward--8",
            "ward-x",
            "ward-0",
            "ward-08",
            "full-8",
            "muvera-8",
        ],
    )
    def test_unknown_ones_are_refused_with_those_there_are(self, name):
        with pytest.raises(ValueError, match=r"unknown method .* ward-<k>"):
            method(name)
