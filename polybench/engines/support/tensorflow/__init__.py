"""What engines that compute with TensorFlow share."""
