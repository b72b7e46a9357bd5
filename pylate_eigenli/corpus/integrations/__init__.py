"""A ``TextIndex`` as the retriever of LangChain, LlamaIndex and Haystack, a module each."""
