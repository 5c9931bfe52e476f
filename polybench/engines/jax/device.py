"""A device by its name, and what is set for a whole process: precision, and that nothing is kept on disk."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from polybench.engines.support.frameworks import cuda_index

CUDA_INSTALL = "pip install 'jax[cuda12]'"


def find_device(device: str) -> Any:
    """The jax.Device of `cpu`, `cuda` or `cuda:1`; raises Unavailable where it is not there."""
    import jax

    if device == "cpu":
        return jax.devices("cpu")[0]
    found = cuda_devices()
    index = cuda_index(device, len(found), cuda_build=_has_cuda_plugin(), install=CUDA_INSTALL)
    return found[index]


def cuda_devices() -> list[Any]:
    """Those that JAX sees; without its plugin for CUDA, or without a driver, it raises instead."""
    import jax

    try:
        return list(jax.devices("cuda"))
    except RuntimeError:
        return []


def _has_cuda_plugin() -> bool:
    return any("cuda" in plugin.name for plugin in entry_points(group="jax_plugins"))


def set_precision(dtype: str, precision: str) -> None:
    """64 bits where they are asked for, and what products of float32 on a GPU are computed in.

    JAX's own default there is TensorFloat-32; on the CPU it makes no difference.
    """
    import jax

    jax.config.update("jax_enable_x64", dtype == "float64")
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if precision == "tf32" else "float32")
