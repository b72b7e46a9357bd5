"""Print the megabytes of a corpus' tokens, and by how much the memory of this process grows.

Run in a process of its own, because the peak memory of a process does not go down again.
"""

from __future__ import annotations

import numpy as np
from benchmarks.memory import peak_megabytes
from datasets import Dataset
from helpers.local_tasks import Known

from pylate_eigenli.evaluation.mteb_search import CompressedSearch

# Long documents, because an index also needs some memory per document to search.
DOCUMENTS, TOKENS, DIM = 2000, 1200, 128


class Noise:
    """A model whose embeddings cost nothing but memory."""

    def __init__(self) -> None:
        self.tokens = np.random.default_rng(0).standard_normal((2 * TOKENS, DIM), np.float32)

    def encode(self, texts, *, is_query, **options):
        begins = [int(text) % TOKENS for text in texts]
        return [self.tokens[begin : begin + TOKENS].copy() for begin in begins]


def main() -> None:
    ids = [str(i) for i in range(DOCUMENTS)]
    corpus = Dataset.from_dict({"id": ids, "text": ids})
    search = CompressedSearch(Noise(), "eigenli-4", chunk_size=12, name="some/noise")
    context = {
        "task_metadata": Known.metadata,
        "hf_split": "test",
        "hf_subset": "default",
        "encode_kwargs": {"show_progress_bar": False},
    }
    # The first chunk loads libraries and compiles kernels.
    search.index(corpus.select(range(1)), **context)
    search.search(corpus.select(range(1)), top_k=1, **context)
    before = peak_megabytes()
    search.index(corpus, **context)
    search.search(corpus.select(range(10)), top_k=10, **context)
    print(DOCUMENTS * TOKENS * DIM * 4 / 2**20, peak_megabytes() - before)


if __name__ == "__main__":
    main()
