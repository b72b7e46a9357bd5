"""A LangChain chain that answers from an index of texts; it prints what a chat model would read.

python examples/langchain_retriever.py [MODEL]
"""

import sys

from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough

from pylate_eigenli import TextIndex
from pylate_eigenli.corpus.integrations.langchain import EigenLIRetriever

texts = [
    "Bread needs flour, water, salt and yeast.",
    "Let the dough rest for an hour before it goes into the oven.",
    "Cats sleep most of the day.",
]
topics = [{"topic": "baking"}, {"topic": "baking"}, {"topic": "animals"}]

index = TextIndex("langchain-index", model=sys.argv[1] if len(sys.argv) > 1 else None)
index.add(texts, metadata=topics)
retriever = EigenLIRetriever(index=index, k=2)


def joined(documents):
    return "\n".join(document.page_content for document in documents)


prompt = ChatPromptTemplate.from_template("Answer from these texts:\n{texts}\n\n{question}")
chain = {"texts": retriever | joined, "question": RunnablePassthrough()} | prompt  # | chat model
print(chain.invoke("How do I bake a loaf?").to_string())

for document in retriever.invoke("What rests?", where={"topic": "animals"}):
    print(f"{document.metadata['score']:.3f}  {document.page_content}")
