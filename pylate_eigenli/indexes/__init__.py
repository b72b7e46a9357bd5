"""Indexes: what people open, in a folder, behind an ANN library or in a vector database."""
