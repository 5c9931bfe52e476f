"""Checks that an engine computes the same results as the float64 reference."""
