"""Effectiveness on retrieval benchmarks: methods, collections, metrics, mteb and the paper's numbers."""
