"""Train a model for an EigenLI index, and measure the gain on queries it has never seen.

    python examples/train_with_eigenli.py [MODEL] [--steps STEPS]

MODEL is any PyLate model, by default a small one that installs with pip. It learns to find the
docstrings of Python's standard library by their first sentences. Every third module is held out.
"""

import argparse
import tempfile

from datasets import Dataset
from pylate import losses, models, utils
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

from pylate_eigenli import EigenLIScores, EigenLISVIndex
from pylate_eigenli.evaluation.known_items import known_item_collection, known_items
from pylate_eigenli.evaluation.metrics import evaluate
from pylate_eigenli.models.default import default_model
from pylate_eigenli.models.standard_library import standard_library_documents

parser = argparse.ArgumentParser()
parser.add_argument("model", nargs="?")
parser.add_argument("--steps", type=int, default=40)
given = parser.parse_args()
model = models.ColBERT(given.model or default_model())
model.document_length = min(model.document_length, 64)  # for a computer without a GPU

items = known_items(standard_library_documents(), 2000)
modules = sorted({item.document.id.split(".")[0] for item in items})
held_out = [item for item in items if item.document.id.split(".")[0] in modules[::3]]
training = [item for item in items if item not in held_out]
queries, texts = [item.query for item in training], [item.document.text for item in training]
# The next docstring, mostly of the same module, is a hard negative; those of a batch are easy ones.
triplets = {"query": queries, "positive": texts, "negative": texts[1:] + texts[:1]}
unseen = known_item_collection([item.document for item in held_out], held_out)


def measure(when: str) -> None:
    """Print how well an index of the held-out documents answers the held-out queries."""
    with EigenLISVIndex(tempfile.mkdtemp(), k=32, preset="plus") as index:
        documents = model.encode(list(unseen.corpus.values()), is_query=False)
        index.add_documents(list(unseen.corpus), documents)
        index.fit_queries(model.encode(queries, is_query=True))
        found = index(model.encode(list(unseen.queries.values()), is_query=True), k=10)
    run = {i: [hit["id"] for hit in hits] for i, hits in zip(unseen.queries, found, strict=True)}
    success, mrr = (evaluate(run, unseen.qrels, "MRR", cutoff).mean() for cutoff in (1, 10))
    print(f"{when} training: Success@1 {success:.3f}, MRR@10 {mrr:.3f} of {len(run)} queries")


measure("before")
args = {"max_steps": given.steps, "learning_rate": 5e-5, "warmup_steps": 5, "save_strategy": "no"}
SentenceTransformerTrainer(
    model,
    SentenceTransformerTrainingArguments(per_device_train_batch_size=16, **args),
    Dataset.from_dict(triplets),
    loss=losses.Contrastive(model, EigenLIScores(k=32, preset="plus")),  # the score of the index
    data_collator=utils.ColBERTCollator(model.tokenize),
).train()
measure("after")
