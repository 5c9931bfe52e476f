"""Saves and loads documents: the store, its index, summaries for `polybench list`, anonymization."""
