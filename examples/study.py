"""Every method and setting at every size against MaxSim over all tokens, on many collections.

    python examples/study.py FOLDER... --model MODEL [--out OUT] [--cache FOLDER] [-k K...]

FOLDERs are collections in BEIR's layout. One table has nDCG@10 of each collection and the geometric
mean relative to full MaxSim, another what plus has more than Ward pooling at the same size, with 95 %
bootstrap intervals. What has been measured is kept in OUT.
"""

import argparse

import numpy as np
from pylate import models

from pylate_eigenli.evaluation import beir, run
from pylate_eigenli.evaluation.bootstrap import geometric_interval, paired_interval

parser = argparse.ArgumentParser()
parser.add_argument("folders", nargs="+")
parser.add_argument("--model", required=True)
parser.add_argument("--out", default="study")
parser.add_argument("--cache", help="folder for token embeddings")
parser.add_argument("-k", type=int, nargs="+", default=[8, 16, 32, 64])
arguments = parser.parse_args()

FAMILIES = ["eigenli", "ward", "kmeans"]
# Of subspaces of every size; plus is "filter=ridge:idf=0.4:background=0.75".
SETTINGS = "filter=soft filter=ridge filter=energy(0.9) idf=0.25 background=0.5 centering=both"
SETTINGS += " filter=soft:idf=0.4:background=0.25 filter=ridge:background=0.75"
methods = ["full", "plus", "muvera", "muvera-centered", *run.expand(FAMILIES, arguments.k)]
methods += [f"plus-{k}" for k in arguments.k]
methods += [f"eigenli-{k}:{setting}" for setting in SETTINGS.split() for k in arguments.k]

collections = [beir.load(folder) for folder in arguments.folders]
results = run.evaluate(
    models.ColBERT(model_name_or_path=arguments.model),
    arguments.model,
    collections,
    methods,
    arguments.out,
    cache=arguments.cache,
)
per_query = {(r.method, r.data): np.array(r.per_query["nDCG@10"]) for r in results}
names = [collection.name for collection in collections]
full = [per_query["full", name] for name in names]

print(f"| nDCG@10 | {' | '.join(names)} | against full MaxSim |")
print("| --- |" + " ---: |" * (len(names) + 1))
for method in methods:
    values = [per_query[method, name] for name in names]
    gain = geometric_interval(values, full)
    cells = [f"{value.mean():.3f}" for value in values]
    print(f"| {method} | {' | '.join(cells)} | {gain[0]:+.1%} ({gain[1]:+.1%}, {gain[2]:+.1%}) |")

print(f"\n| plus - Ward | {' | '.join(names)} |")
print("| --- |" + " ---: |" * len(names))
for k in arguments.k:
    pairs = [(per_query[f"plus-{k}", name], per_query[f"ward-{k}", name]) for name in names]
    gains = [paired_interval(plus, ward) for plus, ward in pairs]
    print(f"| {k} | {' | '.join('{:+.3f} ({:+.3f}, {:+.3f})'.format(*gain) for gain in gains)} |")
