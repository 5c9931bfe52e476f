"""Keras, which two engines are written in, whatever it computes with."""
