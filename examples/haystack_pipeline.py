"""A Haystack pipeline that answers from an index of texts; it prints what a generator would read.

python examples/haystack_pipeline.py [MODEL]
"""

import sys

from haystack import Pipeline
from haystack.components.builders import PromptBuilder

from pylate_eigenli import TextIndex
from pylate_eigenli.corpus.integrations.haystack import EigenLIRetriever

texts = [
    "Bread needs flour, water, salt and yeast.",
    "Let the dough rest for an hour before it goes into the oven.",
    "Cats sleep most of the day.",
]
topics = [{"topic": "baking"}, {"topic": "baking"}, {"topic": "animals"}]
template = """Answer from these texts:
{% for document in documents %}{{ document.content }}
{% endfor %}
{{ question }}"""

index = TextIndex("haystack-index", model=sys.argv[1] if len(sys.argv) > 1 else None)
index.add(texts, metadata=topics)

pipeline = Pipeline()
pipeline.add_component("retriever", EigenLIRetriever(index, top_k=2))
pipeline.add_component("prompt", PromptBuilder(template, required_variables="*"))
pipeline.connect("retriever.documents", "prompt.documents")  # and the prompt to a generator

question = "How do I bake a loaf?"
only_baking = {"field": "meta.topic", "operator": "==", "value": "baking"}
inputs = {
    "retriever": {"query": question, "filters": only_baking},
    "prompt": {"question": question},
}
print(pipeline.run(inputs)["prompt"]["prompt"])
