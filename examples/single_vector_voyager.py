"""Late interaction inside an ordinary ANN library: one vector per document, served by Voyager.

    pip install "pylate-eigenli[voyager]"
    python examples/single_vector_voyager.py [MODEL]

MODEL is any PyLate model, by default one from the Hugging Face hub.
"""

import sys
import tempfile

from pylate import models

from pylate_eigenli import EigenLISVIndex

model = models.ColBERT(sys.argv[1] if len(sys.argv) > 1 else "lightonai/GTE-ModernColBERT-v1")

animals = ["cat", "dog", "horse", "crow", "trout", "bee", "ant", "whale", "newt", "crab"]
places = ["the garden", "a forest", "the sea", "our house", "a river"]
texts = [f"A {animal} was seen in {place}." for animal in animals for place in places]

with EigenLISVIndex(tempfile.mkdtemp(), backend="voyager", k=8) as index:
    index.add_documents(texts, model.encode(texts, is_query=False))
    index.build()  # small collections are scanned otherwise
    queries = model.encode(["who was seen in the water?", "insects at home"], is_query=True)
    for hits in index(queries, k=3):
        print([hit["id"] for hit in hits])
    print("recall against a full scan:", index.recall_against_exact(queries, k=10))
