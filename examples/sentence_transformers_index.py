"""Texts, a MultiVectorEncoder of sentence-transformers 6, and an index of one vector per text.

python examples/sentence_transformers_index.py [MODEL]
"""

import sys

from sentence_transformers import MultiVectorEncoder

from pylate_eigenli import EigenLISVIndex

texts = [
    "Late interaction keeps one vector per token, so a query can match every part of a text.",
    "A vector database stores one vector per document and finds the nearest ones to a query.",
    "The second moment of a document's token vectors has few large eigenvalues.",
]
queries = ["which eigenvalues are large?", "what does late interaction keep?"]

model = MultiVectorEncoder(sys.argv[1] if len(sys.argv) > 1 else "lightonai/LateOn")
index = EigenLISVIndex(index_folder="eigenli-index", override=True)
index.add_documents(documents_ids=texts, documents_embeddings=model.encode_document(texts))

for query, hits in zip(queries, index(model.encode_query(queries), k=2), strict=True):
    print(query, *(f"{hit['score']:8.3f}  {hit['id']}" for hit in hits), sep="\n")
