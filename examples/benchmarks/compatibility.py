"""PyLate's and mteb's own examples and tasks, run with the indexes and scores of this package.

    cd examples && python -m benchmarks.compatibility [--model NAME]

PyLate's doctests run with its indexes, and the scores of its losses, swapped for ours. mteb's mock
tasks of texts and images run with compressed documents; without compression they must give what
mteb's own search gives. The exit code is 1 if anything fails.
"""

from __future__ import annotations

import argparse
import doctest
import importlib
import os
import sys
import tempfile
from functools import partial
from typing import Any
from unittest.mock import patch

from pylate_eigenli import EigenLIIndex, EigenLIScores, EigenLISVIndex
from pylate_eigenli.evaluation.mteb_search import CompressedSearch
from pylate_eigenli.models.default import default_model

_EXAMPLES = (
    "pylate.indexes.plaid",
    "pylate.indexes.voyager",
    "pylate.retrieve.colbert",
    "pylate.rank.rank",
    "pylate.losses.contrastive",
    "pylate.losses.cached_contrastive",
    "pylate.losses.distillation",
)
_METHODS = ("eigenli-8", "eigenli-sv-8", "full")


def run_examples(index_type: type, model: str) -> list[str]:
    """Run PyLate's doctests with an index in place of its own; return what failed.

    Parameters
    ----------
    index_type
        The index.
    model
        Name or path of the model that takes the place of all others.
    """
    from pylate import indexes, losses, models

    def swapped(
        index_folder: str, index_name: str, override: bool = False, **theirs: Any
    ) -> Any:  # their other options mean nothing here
        return index_type(index_folder, index_name, override, show_progress=False)

    # Loaded once, whatever the examples ask for: they are not about the model.
    loaded = models.ColBERT(model, device="cpu")
    ours: dict[Any, dict[str, Any]] = {
        indexes: {"PLAID": swapped, "Voyager": swapped},
        models: {"ColBERT": lambda *_, **__: loaded},
        losses: {
            "Contrastive": partial(losses.Contrastive, score_metric=EigenLIScores(k=8)),
            "CachedContrastive": partial(losses.CachedContrastive, score_metric=EigenLIScores(k=8)),
            "Distillation": partial(
                losses.Distillation, score_metric=EigenLIScores(k=8, distillation=True)
            ),
        },
    }
    failed, tried = [], 0
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    for name in _EXAMPLES:
        module = importlib.import_module(name)
        patches = [patch.multiple(target, **names) for target, names in ours.items()]
        for change in patches:
            change.start()
        try:
            for test in doctest.DocTestFinder().find(module, name):
                result = runner.run(test, out=failed.append, clear_globs=True)
                tried += result.attempted
        finally:
            for change in patches:
                change.stop()
    print(f"{index_type.__name__}: {tried} examples of PyLate, {runner.failures} failed")
    return failed


def run_tasks(method: str) -> list[str]:
    """Run mteb's mock tasks with a method; return what failed."""
    import mteb
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.mocks import mock_tasks

    baseline = mteb.get_model("mteb/baseline-random-colbert")
    tasks = [
        kind()
        for kind in vars(mock_tasks).values()
        if isinstance(kind, type)
        and issubclass(kind, AbsTaskRetrieval)
        and {"text", "image"}.issuperset(kind.metadata.modalities)
    ]
    failed = []
    for task in tasks:
        options: dict[str, Any] = {"cache": None, "show_progress_bar": False}
        try:
            ours = _score(mteb.evaluate(CompressedSearch(baseline, method), task, **options))
            theirs = _score(mteb.evaluate(baseline, task, **options))
            if method == "full" and abs(ours - theirs) > 1e-6:
                failed.append(f"{task.metadata.name}: {ours} instead of {theirs}")
        except Exception as error:
            failed.append(f"{task.metadata.name}: {error!r}")
    print(f"{method}: {len(tasks)} tasks of mteb, {len(failed)} failed")
    return failed


def _score(results: Any) -> float:
    (result,) = results.task_results
    return float(result.get_score())


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run, print what failed; return 0 if nothing did."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", help="model for PyLate's examples; by default that of the demo")
    model = parser.parse_args(arguments).model or default_model()
    failed = []
    here = os.getcwd()
    model = os.path.abspath(model) if os.path.isdir(model) else model
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # where the examples write
        for index_type in (EigenLIIndex, EigenLISVIndex):
            failed += run_examples(index_type, model)
        os.chdir(here)
    for method in _METHODS:
        failed += run_tasks(method)
    for failure in failed:
        print(failure)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
