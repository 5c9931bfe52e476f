"""JAX without a neural network library. This module does not import JAX."""

from __future__ import annotations

from polybench.engines.base import Engine
from polybench.engines.shared.frameworks import import_framework


def make_engine() -> Engine:
    """Import JAX and make the engine; raises EngineUnavailable."""
    import_framework("jax", "JAX", "jax")
    import_framework("optax", "optax", "jax")
    from polybench.engines.jax.engine import JaxEngine

    return JaxEngine()
