"""Tests that need a GPU: `make gpu`, which calls `python -m tests.gpu`, or `pytest -m gpu tests/gpu`."""
