"""Interference with a worker while its timing block ran: CPU contention by other processes or the hypervisor.

The decision never uses the measured step times, so it cannot favour an engine.
"""

from __future__ import annotations

from polybench.machine.load import MachineLoad, read_counters
from polybench.machine.process_counters import cpu_seconds, kernel_counts, seconds_per_fault
from polybench.schema.resources import BlockCounters

MAX_WAIT_FRACTION = 0.03
"""Fraction of its CPU time that a worker's threads may wait for a core. The wait alone is not interference:
an engine with more threads than cores waits for itself."""


class BlockMeter:
    """Reads the counters of process `pid` when it is created, and again when it is stopped."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._machine = read_counters()
        self._cpu = cpu_seconds(pid)
        self._kernel = kernel_counts(pid)

    def stop(self) -> BlockCounters:
        """Return the changes since the meter was created."""
        current, cpu_used = kernel_counts(self._pid), cpu_seconds(self._pid) - self._cpu
        load = read_counters().load_since(self._machine)
        kernel_delta = None if current is None or self._kernel is None else current.delta(self._kernel)
        return BlockCounters(
            wall_seconds=load.seconds,
            cpu_seconds=cpu_used,
            other_process_cpu_seconds=load.other_cpu_seconds,
            steal_seconds=load.steal_seconds,
            cpu_pressure_seconds=load.cpu_pressure_seconds,
            throttled_seconds=load.throttled_seconds,
            affected=has_interference(load, cpu_used, kernel_delta.cpu_wait_seconds if kernel_delta else None),
            **({} if kernel_delta is None else kernel_delta._asdict()),
            page_fault_seconds=kernel_delta.minor_faults * seconds_per_fault() if kernel_delta else 0.0,
        )


def has_interference(load: MachineLoad, cpu_seconds: float, cpu_wait_seconds: float | None) -> bool:
    """Return True if the hypervisor or other processes kept a worker, with this CPU time, from its cores.

    `cpu_wait_seconds` is the time that its threads waited for a core. If the kernel does not report it, the CPU
    pressure of the machine is used. Without that too, a busy machine is enough.
    """
    if not load.is_busy:
        return False
    wait_seconds = load.cpu_pressure_seconds if cpu_wait_seconds is None else cpu_wait_seconds
    return load.has_steal or wait_seconds is None or wait_seconds > MAX_WAIT_FRACTION * cpu_seconds


def severity(counters: BlockCounters) -> float:
    """Return the relative amount of interference with a block, to find the least affected of several."""
    wait_seconds = counters.cpu_pressure_seconds if counters.cpu_wait_seconds is None else counters.cpu_wait_seconds
    taken = wait_seconds, counters.other_process_cpu_seconds, counters.steal_seconds
    return sum(seconds or 0.0 for seconds in taken) / counters.wall_seconds
