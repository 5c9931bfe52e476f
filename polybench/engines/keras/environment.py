"""Environment variables that select Keras's backend when Keras is imported. This module imports no Keras."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import NamedTuple

from polybench.errors import EngineUnavailable, install_command

BACKEND_VARIABLE = "KERAS_BACKEND"


class BackendRow(NamedTuple):
    """The name of a backend for users, polybench's extra that installs it, and variables of its workers."""

    product: str
    extra: str
    environment: Mapping[str, str]


BACKENDS = {
    "tensorflow": BackendRow("TensorFlow", "tf", {"TF_CPP_MIN_LOG_LEVEL": "2"}),
    "torch": BackendRow("PyTorch", "torch", {}),
    # Only NPROC sizes XLA's CPU thread pools (xla/pjrt/utils.cc, DefaultThreadPoolSize).
    "jax": BackendRow("JAX", "jax", {"NPROC": "{threads}", "PJRT_NPROC": "{threads}"}),
}
"""Backends by Keras's name, which is also the module's; the first is Keras's default."""


def environment(device: str, threads: int, variants: tuple[str, ...]) -> dict[str, str]:  # noqa: ARG001
    """Variables of a worker with these variants, at most one of them a backend; see `EngineSpec`."""
    requested = [variant for variant in variants if variant in BACKENDS]
    if len(requested) > 1:
        raise EngineUnavailable(
            f"Keras runs on one backend, not on {' and '.join(requested)}",
            f"use {' or '.join(f'keras+{name}' for name in requested)}",
        )
    backend = requested[0] if requested else "tensorflow"
    variables = BACKENDS[backend].environment.items()
    return {BACKEND_VARIABLE: backend} | {name: value.replace("{threads}", str(threads)) for name, value in variables}


def check_requirements(variants: tuple[str, ...]) -> None:
    """Check for Keras's backend without importing it; see `EngineSpec.requirement_check`."""
    backend = environment("cpu", 1, variants)[BACKEND_VARIABLE]
    if importlib.util.find_spec(backend) is None:
        raise EngineUnavailable(f"{backend} is not installed", install_command(BACKENDS[backend].extra))
