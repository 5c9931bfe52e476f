"""Converts measurements into documents: comparisons, peaks, layers, overheads, sweeps."""
