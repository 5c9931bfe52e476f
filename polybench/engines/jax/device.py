"""Device lookup by name, and precision settings of the process."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from polybench.engines.shared.frameworks import cuda_index

CUDA_INSTALL = "pip install 'jax[cuda12]'"


def find_device(device: str) -> Any:
    """Return the jax.Device of `cpu`, `cuda` or `cuda:1`; raise EngineUnavailable if it does not exist."""
    import jax

    if device == "cpu":
        return jax.devices("cpu")[0]
    devices = cuda_devices()
    index = cuda_index(device, len(devices), cuda_build=_has_cuda_plugin(), install=CUDA_INSTALL)
    return devices[index]


def cuda_devices() -> list[Any]:
    """Return the CUDA devices visible to JAX; empty without its CUDA plugin or without a driver."""
    import jax

    try:
        return list(jax.devices("cuda"))
    except RuntimeError:
        return []


def _has_cuda_plugin() -> bool:
    return any("cuda" in plugin.name for plugin in entry_points(group="jax_plugins"))


def set_precision(dtype: str, precision: str) -> None:
    """Enable 64-bit dtypes for float64, and set the precision of float32 products on a GPU.

    JAX's default on a GPU is TensorFloat-32; the CPU ignores the setting.
    """
    import jax

    jax.config.update("jax_enable_x64", dtype == "float64")
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if precision == "tf32" else "float32")
