"""Keras 3 on TensorFlow, PyTorch or JAX. This module does not import Keras."""

from __future__ import annotations

import os

from polybench.engines.base import Engine
from polybench.engines.keras.environment import BACKEND_VARIABLE, BACKENDS
from polybench.engines.shared.frameworks import import_framework


def make_engine() -> Engine:
    """Import Keras and its backend, and make the engine; raises EngineUnavailable."""
    name = os.environ[BACKEND_VARIABLE]
    extras = f"keras,{BACKENDS[name].extra}"
    import_framework(name, BACKENDS[name].product, extras)
    import_framework("keras", "Keras", extras)
    from polybench.engines.keras.engine import KerasEngine

    return KerasEngine(name)
