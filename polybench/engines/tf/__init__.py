"""TensorFlow with a Keras model. This module does not import TensorFlow."""

from __future__ import annotations

from polybench.engines.base import Engine
from polybench.engines.shared.frameworks import import_framework


def make_engine() -> Engine:
    """Import TensorFlow and Keras, and make the engine; raises EngineUnavailable."""
    import_framework("tensorflow", "TensorFlow", "tf")
    import_framework("keras", "Keras", "tf")
    from polybench.engines.tf.engine import TensorFlowEngine

    return TensorFlowEngine()
