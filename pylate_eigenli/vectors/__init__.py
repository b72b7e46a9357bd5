"""Subspaces to single vectors to few bits, and the kernels that scan them; knows nothing of files."""
