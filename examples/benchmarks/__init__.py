"""Benchmarks: commands that print ratios measured within one run, never tests."""
