"""Candidates by 1-bit vectors, 1 KB per document, re-ranked by MaxSim in the same call.

    python examples/rerank_maxsim.py [MODEL]

MODEL is any PyLate model, by default one from the Hugging Face hub.
"""

import sys
import tempfile

from pylate import models

from pylate_eigenli import EigenLISVIndex

model = models.ColBERT(sys.argv[1] if len(sys.argv) > 1 else "lightonai/GTE-ModernColBERT-v1")

texts = {
    "yeast": "Yeast ferments sugar into gas that lifts the dough.",
    "honey": "Bees collect nectar and turn it into honey in the hive.",
    "rust": "Iron rusts where water and oxygen reach it.",
    "tides": "The moon's pull moves the sea up and down twice a day.",
}

index = EigenLISVIndex(
    tempfile.mkdtemp(),
    k=8,
    dtype="binary",
    keep_tokens="int8",  # beside the vectors, memory-mapped, read for candidates only
    rerank="maxsim",
    n_candidates=100,
)
index.add_documents(texts, model.encode(list(texts.values()), is_query=False))

for question in ("what makes bread rise?", "why does the sea level change?"):
    query = model.encode([question], is_query=True)
    print(question, [hit["id"] for hit in index(query, k=2)[0]])
    print("  without re-ranking:", [hit["id"] for hit in index(query, k=2, rerank="none")[0]])
