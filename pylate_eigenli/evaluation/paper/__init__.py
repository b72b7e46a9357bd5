"""The paper's published numbers, to compare with."""
