"""TensorFlow code that the engines tf and keras share."""
