"""Keras 3 on TensorFlow, PyTorch or JAX."""
