"""Saves and loads documents: the store, summaries for `polybench list`, anonymization."""
