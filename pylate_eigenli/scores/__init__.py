"""EigenLI scores without an index: scoring, re-ranking, explaining and training."""
