"""Tests of `polybench.importer`."""
