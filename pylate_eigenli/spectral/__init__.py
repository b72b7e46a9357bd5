"""Tokens to second moments to subspaces: the mathematics of EigenLI, independent of storage."""
