"""NumPy reference implementation in float64 for the parity check."""
