"""PyTorch code that the engines torch and keras share."""
