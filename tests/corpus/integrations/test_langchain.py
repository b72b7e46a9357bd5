"""The LangChain retriever: LangChain's own tests, and nothing of a hit is lost."""

from __future__ import annotations

import pytest

from pylate_eigenli.corpus.integrations.langchain import EigenLIRetriever

standard = pytest.importorskip("langchain_tests.integration_tests.retrievers")


@pytest.mark.anyio
class TestLangChainsStandard(standard.RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _index(self, index):
        self.index = index

    retriever_constructor = EigenLIRetriever
    retriever_query_example = "red fruit"

    @property
    def retriever_constructor_params(self):
        return {"index": self.index}


def test_documents_have_the_score_and_metadata_of_their_hits(index):
    for hit, document in zip(
        index.search("red fruit"), EigenLIRetriever(index=index).invoke("red fruit"), strict=True
    ):
        assert (document.id, document.page_content) == (hit.id, hit.text)
        title = {"title": hit.title} if hit.title else {}
        assert document.metadata == {**title, **hit.metadata, "score": hit.score}


@pytest.mark.anyio
async def test_conditions_hold_in_every_way_of_asking(index, anyio_backend):
    retriever = EigenLIRetriever(index=index, where={"kind": "place"})
    assert {found.id for found in retriever.invoke("red fruit")} == {"sky", "sea"}
    asked = {"where": {"year": {"gte": 2022}}, "k": 1}
    (found,) = retriever.invoke("blue sky", **asked)
    assert [found] == await retriever.ainvoke("blue sky", **asked)
    assert found.id in ("sky", "pear")


def test_no_results_are_refused_when_the_retriever_is_made(index):
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        EigenLIRetriever(index=index, k=0)
