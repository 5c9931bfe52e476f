"""A scripted engine."""
