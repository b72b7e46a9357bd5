"""Every method and setting at every size compared with full MaxSim, on many collections.

    python examples/study.py FOLDER... --model MODEL [--out OUT] [--cache FOLDER] [-k K...]

FOLDERs are collections in BEIR's layout. The first table has nDCG@10 on each collection and the
geometric mean relative to full MaxSim; the second has the difference between the preset "plus" and
Ward pooling at the same size. Both have 95 % bootstrap intervals. Results are kept in OUT.
"""

import argparse

import numpy as np
from pylate import models

from pylate_eigenli.evaluation import beir, run
from pylate_eigenli.evaluation.bootstrap import geometric_interval, paired_interval
from pylate_eigenli.evaluation.methods import expand

parser = argparse.ArgumentParser()
parser.add_argument("folders", nargs="+")
parser.add_argument("--model", required=True)
parser.add_argument("--out", default="study")
parser.add_argument("--cache", help="folder for token embeddings")
parser.add_argument("-k", type=int, nargs="+", default=[8, 16, 32, 64])
arguments = parser.parse_args()

FAMILIES = ["eigenli", "ward", "kmeans"]
# The preset "plus" is standardise=true,filter=ridge,background=0.75.
SETTINGS = "preset=plus filter=soft filter=ridge filter=energy(0.9) idf=0.25 background=0.5"
SETTINGS += " centering=both filter=soft,idf=0.4,background=0.25 filter=ridge,background=0.75"
FIXED = ["full", "eigenli-sv-32:preset=plus", "muvera", "muvera-centered"]
settings = [f"eigenli:{setting}" for setting in SETTINGS.split()]
methods = expand([*FIXED, *FAMILIES, *settings], arguments.k)

collections = [beir.load(folder) for folder in arguments.folders]
model = models.ColBERT(model_name_or_path=arguments.model)
results = run.evaluate(
    model, arguments.model, collections, methods, arguments.out, cache=arguments.cache
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
    pairs = [(per_query[f"eigenli-{k}:preset=plus", n], per_query[f"ward-{k}", n]) for n in names]
    gains = [paired_interval(plus, ward) for plus, ward in pairs]
    print(f"| {k} | {' | '.join('{:+.3f} ({:+.3f}, {:+.3f})'.format(*gain) for gain in gains)} |")
