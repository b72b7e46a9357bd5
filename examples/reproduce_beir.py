"""The paper's text experiments: its three models on BEIR, with its settings and beside its numbers.

    python examples/reproduce_beir.py FOLDER... [--models MODEL...] [--out OUT]

FOLDERs are collections in BEIR's layout, named as BEIR names them (scifact, nq ...). The models are
the paper's, from the Hugging Face hub, or any other PyLate models. What has been measured is kept
in OUT, so that the program can be stopped and started again.
"""

import argparse

from pylate import models

from pylate_eigenli.evaluation import beir, run
from pylate_eigenli.evaluation.paper import results as paper
from pylate_eigenli.evaluation.report import Report

MODELS = [
    "colbert-ir/colbertv2.0",
    "answerdotai/answerai-colbert-small-v1",
    "lightonai/GTE-ModernColBERT-v1",
]
METHODS = ["full", "eigenli", "ward", "kmeans", "eigenli-sv-32", "muvera", "muvera-centered"]

parser = argparse.ArgumentParser()
parser.add_argument("folders", nargs="+")
parser.add_argument("--models", nargs="+", default=MODELS)
parser.add_argument("--out", default="reproduction")
arguments = parser.parse_args()

for name in arguments.models:
    results = run.evaluate(
        # 512 document vectors with punctuation, queries expanded to 32 vectors.
        models.ColBERT(model_name_or_path=name, **paper.ENCODING),
        name,
        map(beir.load, arguments.folders),
        run.expand(METHODS, ks=[8, 16, 32]),
        arguments.out,
        batch_size=128,
    )
    print(Report(results).to_markdown())
