"""Keras code that the engines tf and keras share, for every backend."""
