"""Files to texts or pages, and the indexes that keep them beside the vectors."""
