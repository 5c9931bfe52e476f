"""What kept a worker from running while its block was timed, and whether that was somebody else.

The judgement never looks at the time that was measured, so it can favour no engine.
"""

from __future__ import annotations

from polybench.core.document.resources import BlockReading
from polybench.machine.meters.cpu import cpu_seconds
from polybench.machine.meters.kernel import kernel_counts, seconds_per_fault
from polybench.machine.noise import Load, read_machine

WAITED = 0.03
"""Of its CPU time, that a worker's threads waited for a core. Alone it proves nothing: an engine with more
threads than cores waits for itself."""


class DisturbanceMeter:
    """Watches one worker for the length of a block; made once for a study."""

    def __init__(self) -> None:
        self._seconds_per_fault = seconds_per_fault()

    def start(self, pid: int) -> BlockMeter:
        """Read everything now."""
        return BlockMeter(pid, self._seconds_per_fault)


class BlockMeter:
    """One block of process `pid`: reads when it is made, and when it is stopped."""

    def __init__(self, pid: int, seconds_per_fault: float) -> None:
        self._pid, self._seconds_per_fault = pid, seconds_per_fault
        self._machine = read_machine()
        self._cpu = cpu_seconds(pid)
        self._kernel = kernel_counts(pid)

    def stop(self) -> BlockReading:
        """What happened since it was made."""
        now, cpu = kernel_counts(self._pid), cpu_seconds(self._pid) - self._cpu
        load = read_machine().since(self._machine)
        use = None if now is None or self._kernel is None else now.since(self._kernel)
        return BlockReading(
            wall_seconds=load.seconds,
            cpu_seconds=cpu,
            others_cpu_seconds=load.others,
            steal_seconds=load.steal,
            pressure_seconds=load.pressure,
            disturbed=disturbed(load, cpu, use.run_delay_seconds if use else None),
            **({} if use is None else use._asdict()),
            fault_seconds=use.minor_faults * self._seconds_per_fault if use else 0.0,
        )


def disturbed(load: Load, cpu_seconds: float, run_delay: float | None) -> bool:
    """Whether the hypervisor or other processes kept a worker from its cores.

    Args:
        load: of the machine, meanwhile.
        cpu_seconds: of the worker.
        run_delay: seconds that its threads waited for a core; where the kernel does not tell, the pressure
            on the machine's cores stands in for it, and where it has no pressure files either, that others
            were busy is enough.
    """
    if not load.busy:
        return False
    waited = load.pressure if run_delay is None else run_delay
    return load.stolen or waited is None or waited > WAITED * cpu_seconds


def severity(reading: BlockReading) -> float:
    """By how much a block was disturbed, to find the least disturbed of several; in parts of its time."""
    waited = reading.run_delay_seconds or reading.pressure_seconds or 0.0
    return (waited + reading.others_cpu_seconds + reading.steal_seconds) / reading.wall_seconds
