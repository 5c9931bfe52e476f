"""Experiments of several measurements: sweeps, layers, peaks, allocation sites, and the search for a version."""
