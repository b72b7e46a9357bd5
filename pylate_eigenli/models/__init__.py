"""Models: texts and pages to token embeddings."""
