"""What a program's framework offers to every program: synchronization, threads, versions, counts of allocations.

A framework is that of the program if the program has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from polybench.engines.job import NO_DEVIATIONS, Job, NumericalConventions
from polybench.engines.shared.frameworks import has_cuda_driver
from polybench.schema.resources import Allocations

_LIBRARIES = ("torch", "tensorflow", "keras", "jax", "jaxlib", "optax", "flax", "numpy")


def versions() -> dict[str, str]:
    """Return the versions of the libraries that this process has imported."""
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in _LIBRARIES}
    return {name: str(version) for name, version in found.items() if version is not None}


def devices() -> tuple[str, ...]:
    """Return the CPU and, if there is a driver, the first GPU: which of them a program uses is its `DEVICE`."""
    return ("cpu", "cuda:0") if has_cuda_driver() else ("cpu",)


def set_threads(threads: int) -> None:
    """Set the sizes of PyTorch's thread pools; TensorFlow and JAX read their variables at start."""
    if "torch" in sys.modules:
        from polybench.engines.shared import pytorch

        pytorch.set_threads(threads)


def set_default_dtype(dtype: str) -> None:
    """Let JAX and Keras begin again in this type, before a program is run again.

    JAX has arrays in float64 only on request, and Keras gives the type of its first layer to all later ones.
    """
    if (jax := sys.modules.get("jax")) is not None:
        jax.config.update("jax_enable_x64", dtype == "float64")
    if (keras := sys.modules.get("keras")) is not None:
        keras.config.set_dtype_policy(dtype)


def synchronizer(program: Any) -> Callable[[Any], object]:
    """Return the function of (state, loss) that waits until the device has computed both."""
    if hasattr(program, "synchronize"):
        return lambda values: program.synchronize(values[0])
    if (jax := sys.modules.get("jax")) is not None:
        wait: Callable[[Any], object] = jax.block_until_ready
        return wait
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return lambda _: torch.cuda.synchronize()
    tensorflow: Any = sys.modules.get("tensorflow")
    if tensorflow is not None and tensorflow.config.list_logical_devices("GPU"):
        return lambda _: tensorflow.test.experimental.sync_devices()
    return lambda _: None


def device_bytes_in_use() -> int | None:
    """Return the bytes in use on the first GPU; None if no framework of this process counts them."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.memory_allocated())
    if (jax := sys.modules.get("jax")) is not None:
        return (jax.devices()[0].memory_stats() or {}).get("bytes_in_use")
    tensorflow: Any = sys.modules.get("tensorflow")
    if tensorflow is not None and tensorflow.config.list_logical_devices("GPU"):
        return int(tensorflow.config.experimental.get_memory_info("GPU:0")["current"])
    return None


def conventions(job: Job) -> NumericalConventions:
    """Return the conventions of Keras, if the program has imported it; PyTorch and JAX have no deviations."""
    if "keras" not in sys.modules:
        return NO_DEVIATIONS
    from polybench.engines.shared import keras_state

    return keras_state.conventions(job)


def count_allocations(train: Callable[[], object], steps: int, device: str) -> Allocations:
    """Count the tensors that `train` allocates in PyTorch or TensorFlow; no source counts those of other libraries."""
    if (torch := sys.modules.get("torch")) is not None:
        from polybench.engines.shared import pytorch

        return pytorch.count_allocations(train, steps, torch.device(device))
    if "tensorflow" in sys.modules:
        from polybench.engines.shared import tensorflow

        return tensorflow.count_allocations(train, steps, device != "cpu")
    return Allocations()
