"""Compiled kernels: the leading eigenvectors of many small symmetric matrices."""
