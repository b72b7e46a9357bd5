"""Compiled numerical kernels: the leading eigenvectors of small symmetric matrices, many at a time."""
