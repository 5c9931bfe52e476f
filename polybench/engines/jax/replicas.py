"""Data-parallel training as JAX's users have it: one program, whose batch lies in parts on several devices.

The compiler adds what must be exchanged (https://docs.jax.dev/en/latest/sharded-computation.html, automatic
parallelism), so what is computed is that of the whole batch, batch norm's statistics included. On the CPU the
devices are logical ones (`jax_num_cpu_devices`), which share the process's threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from polybench.core.job import Job
from polybench.engines.jax.device import find_device


class Placement(NamedTuple):
    """Where arrays go: a device, or a sharding over several.

    Attributes:
        device: the first.
        state: of what every replica has.
        batch: of what has the batch as its first axis.
    """

    device: Any
    state: Any
    batch: Any

    @property
    def several(self) -> bool:
        """Whether there are several replicas."""
        return self.state is not self.device


def placement(job: Job) -> Placement:
    """Of a job's replicas, on its device and the next ones; raises Unavailable where one is not there."""
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
    return Placement(
        first, NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("replicas"))
    )
