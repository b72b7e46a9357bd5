"""The Haystack component: it works in pipelines, can be stored, and sends nothing to anybody."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from haystack import Pipeline
from haystack.core.component import Component

from pylate_eigenli.corpus.integrations.haystack import EigenLIRetriever


def condition(name, operator, value):
    return {"field": f"meta.{name}", "operator": operator, "value": value}


def all_of(*conditions, combined="AND"):
    return {"operator": combined, "conditions": list(conditions)}


def test_documents_have_the_score_and_metadata_of_their_hits(index):
    retriever = EigenLIRetriever(index)
    assert isinstance(retriever, Component)
    for hit, document in zip(
        index.search("red fruit"), retriever.run("red fruit")["documents"], strict=True
    ):
        assert (document.id, document.content, document.score) == (hit.id, hit.text, hit.score)
        title = {"title": hit.title} if hit.title else {}
        assert document.meta == {**title, **hit.metadata}


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"kind": "place"}, {"sky", "sea"}),
        (condition("kind", "==", "place"), {"sky", "sea"}),
        (all_of(condition("year", ">=", 2021), condition("year", "<", 2024)), {"pear", "sea"}),
        (all_of(all_of(condition("kind", "in", ["fruit"])), condition("year", "<=", 2020)),
         {"apple"}),
    ],
)  # fmt: skip
def test_filters_hold_and_those_of_a_run_replace_those_of_the_component(index, filters, found):
    for retriever, given in (
        (EigenLIRetriever(index, filters), {}),
        (EigenLIRetriever(index, {"kind": "none"}), {"filters": filters}),
    ):
        documents = retriever.run("blue fruit", **given)["documents"]
        assert {document.id for document in documents} == found


@pytest.mark.parametrize(
    ("filters", "problem"),
    [
        (condition("year", "!=", 2020), "'year' has the operator '!='"),
        (all_of(condition("year", ">", 1), combined="NOT"), "knows only 'and'"),
    ],
)
def test_other_filters_are_refused_when_the_component_is_made(index, filters, problem):
    with pytest.raises(ValueError, match=problem):
        EigenLIRetriever(index, filters)


@pytest.mark.anyio
async def test_a_stored_pipeline_finds_the_same(index, anyio_backend):
    made = Pipeline()
    made.add_component("retriever", EigenLIRetriever(index, {"kind": "fruit"}, top_k=1))
    inputs = {"retriever": {"query": "red fruit"}}
    found = made.run(inputs)
    assert len(found["retriever"]["documents"]) == 1
    again = Pipeline.loads(made.dumps(), allowed_modules=[EigenLIRetriever.__module__])
    assert again.run(inputs) == found
    assert await again.run_async(inputs) == found


@pytest.mark.parametrize("first", ["", "import haystack;"])
@pytest.mark.parametrize("asked", [None, "True"])
def test_statistics_are_sent_only_if_the_user_asks_for_it(first, asked, tmp_path):
    program = (
        f"{first}import pylate_eigenli.corpus.integrations.haystack;"
        "from haystack.telemetry import _telemetry; print(_telemetry.telemetry is not None)"
    )
    environment = {**os.environ, "HOME": str(tmp_path)}
    environment.pop("HAYSTACK_TELEMETRY_ENABLED", None)
    if asked:
        environment["HAYSTACK_TELEMETRY_ENABLED"] = asked
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == str(asked is not None), done.stderr
