"""What engines that compute with PyTorch share."""
