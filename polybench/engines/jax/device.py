"""Devices in JAX: lookup, precision of the process, and allocations.

Data-parallel training is one program, with the batch sharded over several devices. The compiler inserts the
communication (https://docs.jax.dev/en/latest/sharded-computation.html, automatic parallelism), so the computation
is that of the whole batch, including batch norm's statistics. On the CPU, the devices are logical ones
(`jax_num_cpu_devices`) that share the process's threads.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import jax

from polybench.engines.job import Job
from polybench.engines.shared.frameworks import cuda_index
from polybench.schema.resources import Allocation, Allocations, DeviceAllocation

CUDA_INSTALL = "pip install 'jax[cuda12]'"

SOURCE = "XLA's Compiled.memory_analysis()"

COVERAGE = (
    "XLA's plan: the compiled step's peak of temporary memory, plus results without a donated buffer; no"
    " counts of blocks, and no allocations of XLA's libraries"
)


def find_device(device: str) -> Any:
    """Return the jax.Device of `cpu`, `cuda` or `cuda:1`; raise EngineUnavailable if it does not exist."""
    if device == "cpu":
        return jax.devices("cpu")[0]
    devices = cuda_devices()
    index = cuda_index(device, len(devices), cuda_build=_has_cuda_plugin(), install=CUDA_INSTALL)
    return devices[index]


def cuda_devices() -> list[Any]:
    """Return the CUDA devices visible to JAX; empty without its CUDA plugin or without a driver."""
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
    jax.config.update("jax_enable_x64", dtype == "float64")
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if precision == "tf32" else "float32")


def find_devices(job: Job) -> list[Any]:
    """Return the devices of a job's replicas: its own and the next ones; raises EngineUnavailable."""
    count = job.workload.replicas
    if job.device == "cpu":
        return list(jax.devices("cpu")[:count])
    first = int(job.device.partition(":")[2] or 0)
    return [find_device(f"cuda:{number}") for number in range(first, first + count)]


def count_allocations(train: Callable[[], object], steps: int, compiled: Any, device: Any) -> Allocations:
    """Train `steps` steps with `train`, and count allocations per step; on a GPU these are the second record.

    `compiled` is the result of `jax.jit(...).lower(...).compile()` for the step.
    """
    plan = compiled.memory_analysis()
    planned = plan.temp_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
    before = _allocation_count(device)
    train()
    after = _allocation_count(device)
    if before is None or after is None:
        return Allocations(Allocation(None, float(planned), SOURCE, COVERAGE), None)
    counted = DeviceAllocation((after - before) / steps, float(planned), f"{SOURCE}, memory_stats()", COVERAGE)
    return Allocations(None, counted)


def _allocation_count(device: Any) -> int | None:
    """Number of allocations on the device since the process started; None on the CPU."""
    stats = device.memory_stats()
    return stats["num_allocs"] if stats else None
