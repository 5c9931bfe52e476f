"""The proof that an engine computes what the float64 reference computes."""
