"""The LlamaIndex retriever: nothing of a hit is lost, and filters hold or are refused."""

from __future__ import annotations

import pytest
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from pylate_eigenli.corpus.integrations.llama_index import EigenLIRetriever


def filtered(*conditions, combined="and"):
    filters = [MetadataFilter(key=k, operator=o, value=v) for k, o, v in conditions]
    return MetadataFilters(filters=filters, condition=combined)


def test_nodes_have_the_score_and_metadata_of_their_hits(index):
    for hit, found in zip(
        index.search("red fruit"), EigenLIRetriever(index).retrieve("red fruit"), strict=True
    ):
        assert (found.node.node_id, found.node.text, found.score) == (hit.id, hit.text, hit.score)
        title = {"title": hit.title} if hit.title else {}
        assert found.node.metadata == {**title, **hit.metadata}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"kind": "place"}, {"sky", "sea"}),
        (filtered(("kind", "==", "place")), {"sky", "sea"}),
        (filtered(("year", ">=", 2021), ("year", "<", 2024)), {"pear", "sea"}),
        (filtered(("kind", "in", ["fruit"]), ("year", "<=", 2020)), {"apple"}),
        (MetadataFilters(filters=[filtered(("year", ">", 2022))]), {"sky"}),
    ],
)
async def test_filters_hold(index, filters, found, anyio_backend):
    retriever = EigenLIRetriever(index, filters=filters)
    assert {node.node_id for node in retriever.retrieve("blue fruit")} == found
    assert {node.node_id for node in await retriever.aretrieve("blue fruit")} == found


@pytest.mark.parametrize(
    ("filters", "problem"),
    [
        (filtered(("year", "!=", 2020)), "'year' has the operator '!='"),
        (filtered(("year", ">", 1), ("kind", "==", "x"), combined="or"), "knows only 'and'"),
        (filtered(("year", ">", 1), combined="not"), "knows only 'and'"),
        (filtered(("year", ">", 1), ("year", "==", 2020)), "two conditions on 'year'"),
        (filtered(("year", ">", 1), ("year", ">", 2)), "two conditions on 'year'"),
        (filtered(("year", "==", 1), ("year", "==", 2)), "two conditions on 'year'"),
    ],
)
def test_other_filters_are_refused_when_the_retriever_is_made(index, filters, problem):
    with pytest.raises(ValueError, match=problem):
        EigenLIRetriever(index, filters=filters)


def test_a_query_engine_reads_the_texts_found(index):
    retriever = EigenLIRetriever(index, similarity_top_k=1)
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    (found,) = retriever.retrieve("red fruit")
    assert found.node.text in str(engine.query("red fruit"))
