"""Tokens to moments to subspaces: the mathematics of EigenLI, which knows nothing of files."""
