"""What Keras computes with: a variable of its process, read when Keras is imported. Needs no Keras."""

from __future__ import annotations

from polybench.core.errors import Unavailable

BACKEND = "KERAS_BACKEND"

_VARIABLES = {
    "tensorflow": {"TF_CPP_MIN_LOG_LEVEL": "2"},
    "torch": {},
    # Nothing else sizes XLA's thread pools on the CPU (xla/pjrt/utils.cc, DefaultThreadPoolSize).
    "jax": {"NPROC": "{threads}", "PJRT_NPROC": "{threads}"},
}
"""Backend, as Keras calls it -> what its workers need; the first is Keras's own default."""


def environment(device: str, threads: int, variants: tuple[str, ...]) -> dict[str, str]:  # noqa: ARG001
    """For a worker with these variants, of which at most one may be a backend; see `EngineRow`.

    Raises:
        Unavailable: two are.
    """
    chosen = [variant for variant in variants if variant in _VARIABLES]
    if len(chosen) > 1:
        raise Unavailable(
            f"Keras computes with one backend, not with {' and '.join(chosen)}",
            f"ask for {' or '.join(f'keras+{name}' for name in chosen)}",
        )
    backend = chosen[0] if chosen else "tensorflow"
    own = {name: value.replace("{threads}", str(threads)) for name, value in _VARIABLES[backend].items()}
    return {BACKEND: backend} | own
