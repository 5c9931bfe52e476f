"""Environment variables that select Keras's backend when Keras is imported. This module imports no Keras."""

from __future__ import annotations

import importlib.util

from polybench.errors import EngineUnavailable, install_command

BACKEND_VARIABLE = "KERAS_BACKEND"

_VARIABLES = {
    "tensorflow": {"TF_CPP_MIN_LOG_LEVEL": "2"},
    "torch": {},
    # Only NPROC sizes XLA's CPU thread pools (xla/pjrt/utils.cc, DefaultThreadPoolSize).
    "jax": {"NPROC": "{threads}", "PJRT_NPROC": "{threads}"},
}
"""Worker environment by backend, with Keras's names; the first is Keras's default."""


def environment(device: str, threads: int, variants: tuple[str, ...]) -> dict[str, str]:  # noqa: ARG001
    """Variables of a worker with these variants, at most one of them a backend; see `EngineSpec`."""
    backends = [variant for variant in variants if variant in _VARIABLES]
    if len(backends) > 1:
        raise EngineUnavailable(
            f"Keras runs on one backend, not on {' and '.join(backends)}",
            f"use {' or '.join(f'keras+{name}' for name in backends)}",
        )
    backend = backends[0] if backends else "tensorflow"
    variables = _VARIABLES[backend].items()
    return {BACKEND_VARIABLE: backend} | {name: value.replace("{threads}", str(threads)) for name, value in variables}


def check_requirements(variants: tuple[str, ...]) -> None:
    """Check for Keras's backend without importing it; see `EngineSpec.requirement_check`."""
    backend = environment("cpu", 1, variants)[BACKEND_VARIABLE]
    if importlib.util.find_spec(backend) is None:
        extra = {"tensorflow": "tf"}.get(backend, backend)
        raise EngineUnavailable(f"{backend} is not installed", install_command(extra))
