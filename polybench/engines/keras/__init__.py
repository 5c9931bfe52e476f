"""Keras, with TensorFlow, PyTorch or JAX to compute."""
