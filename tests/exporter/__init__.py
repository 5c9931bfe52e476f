"""Tests of `polybench.exporter`."""
