"""JAX without a neural network library."""
