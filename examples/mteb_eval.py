"""EigenLI and its baselines on tasks of mteb: retrieval, reranking, any language.

    python examples/mteb_eval.py [MODEL] [TASK...]

MODEL is any PyLate model, by default one from the Hugging Face hub; TASKs are names of mteb tasks.
mteb keeps the results in its cache, under names such as
``lightonai__GTE-ModernColBERT-v1-eigenli-32``.
"""

import sys

import mteb
from pylate import models

from pylate_eigenli.evaluation.mteb_search import CompressedSearch
from pylate_eigenli.evaluation.paper import results as paper

name = sys.argv[1] if len(sys.argv) > 1 else "lightonai/GTE-ModernColBERT-v1"
tasks = mteb.get_tasks(tasks=sys.argv[2:] or ["SciFact", "ArguAna", "AskUbuntuDupQuestions"])

model = models.ColBERT(model_name_or_path=name, **paper.ENCODING)

for method in ["full", "eigenli-32", "ward-32", "muvera"]:
    search = CompressedSearch(model, method, cache_folder="compressed", name=name)
    results = mteb.evaluate(search, tasks, encode_kwargs={"batch_size": 128})
    print(results.to_dataframe())
