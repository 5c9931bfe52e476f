"""Conditions for interference with a block, and a real process that waits for its core."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from polybench.machine.interference import BlockMeter, has_interference, severity
from polybench.machine.load import MachineLoad
from polybench.machine.process_counters import cpu_seconds, seconds_per_fault
from polybench.schema.resources import BlockCounters
from tests.processes import becomes_true

IDLE = MachineLoad(seconds=1.0, other_cpu_seconds=0.02, steal_seconds=0.0, swapped_bytes=0, cpu_pressure_seconds=0.5)
BUSY = IDLE._replace(other_cpu_seconds=0.9)
STEAL = IDLE._replace(steal_seconds=0.1)


@pytest.mark.parametrize(
    ("load", "cpu_wait_seconds", "expected"),
    [
        (IDLE, 0.0, False),
        (IDLE, 0.9, False),  # more threads than cores: the worker waited for itself
        (BUSY, 0.01, False),  # other processes were busy on other cores
        (BUSY, 0.5, True),
        (STEAL, 0.0, True),  # steal time is not a wait of the worker
        (BUSY, None, True),  # without schedstat the CPU pressure decides
        (BUSY._replace(cpu_pressure_seconds=0.0), None, False),
        (BUSY._replace(cpu_pressure_seconds=None), None, True),  # with neither, a busy machine is enough
        (BUSY._replace(seconds=0.05), 0.5, False),  # a few ticks
    ],
)
def test_interference_needs_a_busy_machine_and_a_waiting_worker(
    load: MachineLoad, cpu_wait_seconds: float | None, expected: bool
) -> None:
    assert has_interference(load, cpu_seconds=2.0, cpu_wait_seconds=cpu_wait_seconds) is expected


def test_severity_grows_with_the_wait() -> None:
    little = BlockCounters(1.0, 2.0, other_process_cpu_seconds=0.2, steal_seconds=0.0, cpu_wait_seconds=0.1)
    much = BlockCounters(1.0, 1.2, other_process_cpu_seconds=0.8, steal_seconds=0.0, cpu_wait_seconds=0.8)
    assert severity(little) < severity(much)
    assert severity(BlockCounters(2.0, 2.0, 0.5, 0.25, cpu_wait_seconds=0.25)) == 0.5  # their sum, per second


def test_a_wait_of_zero_is_not_a_missing_wait() -> None:
    block = BlockCounters(1.0, 2.0, other_process_cpu_seconds=0.0, steal_seconds=0.0, cpu_wait_seconds=0.0)
    assert severity(msgspec.structs.replace(block, cpu_pressure_seconds=0.9)) == severity(block)
    unknown = msgspec.structs.replace(block, cpu_wait_seconds=None, cpu_pressure_seconds=0.9)
    assert severity(unknown) > severity(block)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel has no schedstat")
def test_process_waits_for_the_core_that_it_shares() -> None:
    """Two of this test's processes on one core wait for each other; no other process interferes."""
    core = min(os.sched_getaffinity(0))
    burn = "while True: pass"
    command = ["taskset", "-c", str(core), sys.executable, "-c", burn]
    with subprocess.Popen(command) as one, subprocess.Popen(command) as two:
        try:
            assert becomes_true(lambda: cpu_seconds(one.pid) and cpu_seconds(two.pid))
            meter, start = BlockMeter(one.pid), cpu_seconds(one.pid)
            assert becomes_true(lambda: cpu_seconds(one.pid) > start + 0.2)
            reading = meter.stop()
        finally:
            one.kill()
            two.kill()
    assert reading.cpu_wait_seconds is not None
    # A busy process either runs or waits, and the scheduler divides the core equally.
    assert reading.cpu_seconds + reading.cpu_wait_seconds == pytest.approx(reading.wall_seconds, rel=0.2)
    assert reading.cpu_wait_seconds > 0.3 * reading.wall_seconds
    assert reading.minor_faults is not None
    assert reading.page_fault_seconds == pytest.approx(seconds_per_fault() * reading.minor_faults)
