"""Eager PyTorch."""
