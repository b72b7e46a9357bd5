"""A LlamaIndex query engine that answers from an index of texts, here with a mock language model.

python examples/llama_index_retriever.py [MODEL]
"""

import sys

from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from pylate_eigenli import TextIndex
from pylate_eigenli.corpus.integrations.llama_index import EigenLIRetriever

texts = [
    "Bread needs flour, water, salt and yeast.",
    "Let the dough rest for an hour before it goes into the oven.",
    "Cats sleep most of the day.",
]
topics = [{"topic": "baking"}, {"topic": "baking"}, {"topic": "animals"}]

index = TextIndex("llama-index", model=sys.argv[1] if len(sys.argv) > 1 else None)
index.add(texts, metadata=topics)

retriever = EigenLIRetriever(index, similarity_top_k=2)
engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
print(engine.query("How do I bake a loaf?"))  # MockLLM repeats what it reads

only_animals = MetadataFilters(filters=[MetadataFilter(key="topic", value="animals")])
for found in EigenLIRetriever(index, filters=only_animals).retrieve("What rests?"):
    print(f"{found.score:.3f}  {found.node.text}")
