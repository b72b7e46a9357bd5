"""The private parts of mteb that this package uses are where and what it expects."""

from __future__ import annotations

import inspect

import mteb
import pytest
from helpers.local_tasks import Known
from mteb._create_dataloaders import create_dataloader
from mteb.models import MultiVectorWrapper

from pylate_eigenli.evaluation import mteb_internals

MTEB = (2, 22)


def test_mteb_is_new_enough():
    assert tuple(map(int, mteb.__version__.split(".")[:2])) >= MTEB


def test_the_maker_of_batches_takes_what_it_is_given():
    parameters = inspect.signature(create_dataloader).parameters
    assert {"dataset", "task_metadata", "prompt_type", "batch_size", "num_proc"} <= set(parameters)
    task = Known()
    task.load_data()
    mteb_internals.convert(task)
    rows = task.dataset["default"]["test"]["queries"]
    batches = list(mteb_internals.batches(rows, task.metadata, is_query=True, batch_size=3))
    assert len(batches[0]["text"]) == 3
    assert sum(len(batch["text"]) for batch in batches) == len(rows)


def test_encoders_that_mteb_searches_with_hide_their_encode():
    parameters = inspect.signature(MultiVectorWrapper._encode).parameters
    assert {"task_metadata", "hf_split", "hf_subset", "prompt_type"} <= set(parameters)
    assert not hasattr(MultiVectorWrapper, "encode")


@pytest.mark.parametrize("is_query", [True, False])
def test_prompts_are_found_by_the_kind_of_text(is_query):
    prompts = {"query": "ask: ", "document": "tell: "}
    found = mteb_internals.prompt_of(prompts, Known.metadata, is_query=is_query)
    assert found == ("ask: " if is_query else "tell: ")
    assert mteb_internals.prompt_type(is_query).value == ("query" if is_query else "document")
