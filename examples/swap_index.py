"""PyLate's own retrieval program; only the line that makes the index is different.

    python examples/swap_index.py [MODEL]

MODEL is any PyLate model, by default one from the Hugging Face hub.
"""

import sys

from pylate import models, retrieve

from pylate_eigenli import EigenLIIndex

model = models.ColBERT(
    model_name_or_path=sys.argv[1]
    if len(sys.argv) > 1
    else "answerdotai/answerai-colbert-small-v1",
)

index = EigenLIIndex(  # was: indexes.PLAID(
    index_folder="pylate-index",
    index_name="index",
    override=True,
)

retriever = retrieve.ColBERT(index=index)

documents_ids = ["1", "2", "3"]

documents = [
    "Late interaction keeps one vector per token, so a query can match every part of a text.",
    "A vector database stores one vector per document and finds the nearest ones to a query.",
    "The second moment of a document's token vectors has few large eigenvalues.",
]

documents_embeddings = model.encode(
    documents,
    batch_size=32,
    is_query=False,  # Encoding documents
    show_progress_bar=True,
)

index.add_documents(
    documents_ids=documents_ids,
    documents_embeddings=documents_embeddings,
)

queries_embeddings = model.encode(
    ["which eigenvalues are large?", "what does late interaction keep?"],
    batch_size=32,
    is_query=True,  # Encoding queries
    show_progress_bar=True,
)

scores = retriever.retrieve(
    queries_embeddings=queries_embeddings,
    k=10,
)

print(scores)
