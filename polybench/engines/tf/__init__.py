"""TensorFlow with a Keras model."""
