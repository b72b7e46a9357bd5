"""The contributions of query tokens add up to the score, for every index and re-ranking."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import synthetic
from helpers import definition
from helpers.strategies import unit_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli import EigenLIIndex, EigenLISVIndex, UnknownDocumentError
from pylate_eigenli.scores.explanation import explain, explain_found, spectrum

D, K = 24, 6
SETTINGS = [
    (EigenLIIndex, {"dtype": "float16"}, {}),
    (EigenLIIndex, {"dtype": "int8", "short_documents": "truncate"}, {}),
    (EigenLIIndex, {"filter": "ridge", "background": 0.75, "centering": "both"}, {}),
    (EigenLIIndex, {"preset": "plus"}, {}),
    (EigenLISVIndex, {"preset": "plus"}, {"idf": 0.2}),
    (EigenLISVIndex, {"centering": "both", "keep_tokens": "int8"}, {"rerank": "maxsim"}),
    *((EigenLISVIndex, {"dtype": dtype}, {}) for dtype in ("float32", "int8", "binary")),
    (EigenLISVIndex, {"keep_bases": True}, {"rerank": "eigenli"}),
    (EigenLISVIndex, {"keep_tokens": "float16"}, {"rerank": "maxsim"}),
]


@pytest.mark.parametrize(("kind", "options", "search"), SETTINGS)
def test_contributions_add_up_to_the_score_of_the_index(kind, options, search, tmp_path):
    documents = [*synthetic.documents(40, tokens=20, d=D), *synthetic.documents(10, 3, D, seed=5)]
    (query,) = synthetic.queries(1, tokens=7, d=D)
    with kind(str(tmp_path), k=K, show_progress=False, **options) as index:
        index.add_documents(range(50), documents)
        hits = index([query], k=50, **search)[0]
        explained = explain_found(index, query, [hit["id"] for hit in hits], **search)
    assert all(explanation.contributions.shape == (7,) for explanation in explained)
    np.testing.assert_allclose(
        [explanation.total for explanation in explained],
        [hit["score"] for hit in hits],
        rtol=1e-5,
        atol=1e-5,
    )


FILTERS = ["hard", "soft", "soft(0.02)", "ridge", "ridge(3.0)", "energy(0.7)"]


@pytest.mark.parametrize("centering", ["none", "both", "documents"])
@pytest.mark.parametrize("filter", FILTERS)
def test_embeddings_are_explained_with_the_score_of_the_subspace_index(filter, centering, tmp_path):
    # 40 tokens have a rank far above K, 3 tokens one below it.
    documents = [*synthetic.documents(4, tokens=40, d=D), *synthetic.documents(2, 3, D, seed=5)]
    (query,) = synthetic.queries(1, tokens=7, d=D)
    options = {"k": K, "filter": filter, "centering": centering}
    with EigenLIIndex(str(tmp_path), dtype="float32", show_progress=False, **options) as index:
        index.add_documents(range(6), documents)
        for hit in index([query], k=6)[0]:
            by_tokens = explain(query, documents[hit["id"]], **options)
            assert by_tokens.total == pytest.approx(hit["score"], rel=1e-5, abs=1e-5)
            by_index = explain(query, hit["id"], index=index)
            np.testing.assert_allclose(
                by_tokens.contributions, by_index.contributions, rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize("keep_bases", [False, True])
@pytest.mark.parametrize("filter", ["soft", "ridge"])
def test_documents_of_the_single_vector_index_are_explained_with_its_own_score(
    filter, keep_bases, tmp_path
):
    documents = synthetic.documents(20, tokens=40, d=D)
    (query,) = synthetic.queries(1, tokens=7, d=D)
    options = {"k": K, "filter": filter, "keep_bases": keep_bases, "dtype": "float32"}
    with EigenLISVIndex(str(tmp_path), show_progress=False, **options) as index:
        index.add_documents(range(20), documents)
        for hit in index([query], k=20)[0]:
            total = explain(query, hit["id"], index=index).total
            assert total == pytest.approx(hit["score"], rel=1e-5, abs=1e-5)


def test_options_of_the_other_form_are_refused(tmp_path):
    with pytest.raises(TypeError, match="idf"):
        explain(np.eye(4), np.eye(4), k=2, idf=0.4)
    with EigenLIIndex(str(tmp_path), k=2, show_progress=False) as index:
        index.add_documents(["a"], [np.eye(4)])
        with pytest.raises(TypeError):
            explain(np.eye(4), "a", index=index, filter="soft")


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.integers(1, D),
    st.sampled_from(["fill", "truncate"]),
)
def test_a_contribution_is_the_part_of_a_token_in_the_subspace(seed, m, k, short_documents):
    random = np.random.default_rng(seed)
    query, document = unit_rows(random, 5, D), unit_rows(random, m, D)
    explanation = explain(query, document, k=k, short_documents=short_documents)
    wanted = [definition.score(token[None], document, k, short_documents) for token in query]
    np.testing.assert_allclose(explanation.contributions, wanted, atol=2e-4)


def test_the_spectrum_holds_the_whole_document_and_no_null_directions():
    document = unit_rows(np.random.default_rng(0), 10, D)
    eigenvalues = spectrum(np.concatenate([document, document]))
    assert eigenvalues.shape == (10,)
    assert (np.diff(eigenvalues) <= 0).all()
    assert eigenvalues.sum() == pytest.approx(20, rel=1e-5)
    np.testing.assert_allclose(
        explain(document[:1], document, k=K).eigenvalues, eigenvalues / 2, rtol=1e-5
    )


def test_a_document_that_is_not_there_is_named(tmp_path):
    with EigenLIIndex(str(tmp_path), k=2, show_progress=False) as index:
        index.add_documents(["a"], [np.eye(4)])
        with pytest.raises(UnknownDocumentError, match="'b'"):
            explain_found(index, np.eye(4), ["a", "b"])
