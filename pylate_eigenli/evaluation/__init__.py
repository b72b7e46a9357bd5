"""Effectiveness on retrieval benchmarks: what the paper reports, as data."""
