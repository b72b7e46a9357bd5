"""From laptop to cluster: the same index in files, in Milvus Lite, or on a Milvus server.

    pip install "pylate-eigenli[milvus]"
    python examples/milvus.py [MODEL] [URI]

MODEL is any PyLate model, by default one from the Hugging Face hub. URI is http(s)://host:port of
a server; by default Milvus Lite keeps everything in a temporary folder.
"""

import sys
import tempfile

from pylate import models

from pylate_eigenli import EigenLIIndex

model = models.ColBERT(sys.argv[1] if len(sys.argv) > 1 else "lightonai/GTE-ModernColBERT-v1")
folder = tempfile.mkdtemp()
uri = sys.argv[2] if len(sys.argv) > 2 else f"{folder}/eigenli.db"

animals = ["cat", "dog", "horse", "crow", "trout", "bee", "ant", "whale", "newt", "crab"]
places = ["the garden", "a forest", "the sea", "our house", "a river"]
texts = [f"A {animal} was seen in {place}." for animal in animals for place in places]
queries = model.encode(["who was seen in the water?", "insects at home"], is_query=True)

# A prototype in files ...
local = EigenLIIndex(folder, k=8)
local.add_documents(texts, model.encode(texts, is_query=False))

# ... becomes one on a server without being encoded again, and stays as it was.
options = {"backend": "milvus", "uri": uri, "backend_options": {"index_type": "HNSW"}}
with local.convert(f"{folder}/served", **options, keep_bases=True) as index:
    index.update_documents(
        ["A swan was seen in a river."],
        model.encode(["A swan was seen in a river."], is_query=False),
    )
    index.remove_documents(["A crab was seen in the sea."])
    print(len(index), "documents")
    for hits in index(queries, k=3, rerank="eigenli"):
        print([hit["id"] for hit in hits])
    print(index(queries[:1], k=1, subset=texts[:5])[0])
    print("recall against a full scan:", index.recall_against_exact(queries, k=10))
