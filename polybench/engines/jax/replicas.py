"""Idiomatic data-parallel training in JAX: one program, with the batch sharded over several devices.

The compiler inserts the communication (https://docs.jax.dev/en/latest/sharded-computation.html, automatic
parallelism), so the computation is that of the whole batch, including batch norm's statistics. On the CPU,
the devices are logical ones (`jax_num_cpu_devices`) that share the process's threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from polybench.engines.jax.device import find_device
from polybench.engines.job import Job


class Placement(NamedTuple):
    """Device of the arrays, or their sharding over several devices.

    Attributes:
        device: first device.
        state: device or sharding of arrays that every replica holds.
        batch: device or sharding of arrays whose first axis is the batch.
    """

    device: Any
    state: Any
    batch: Any

    @property
    def is_distributed(self) -> bool:
        """True if there are several replicas."""
        return self.state is not self.device


def find_placement(job: Job) -> Placement:
    """Return the placement of a job's replicas, on its device and the next ones.

    Raises:
        EngineUnavailable: a device does not exist.
    """
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    first, count = find_device(job.device), job.workload.replicas
    if count == 1:
        return Placement(first, first, first)
    if job.device == "cpu":
        devices = jax.devices("cpu")[:count]
    else:
        start = int(job.device.partition(":")[2] or 0)
        devices = [find_device(f"cuda:{start + number}") for number in range(count)]
    mesh = Mesh(devices, ("replicas",))
    return Placement(first, NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("replicas")))
