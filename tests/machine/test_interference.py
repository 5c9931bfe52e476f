"""Conditions for interference with a block, and a real process that waits for its core."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from polybench.machine import interference
from polybench.machine.interference import BlockMeter, has_interference, severity
from polybench.machine.load import MachineCounters, MachineLoad
from polybench.machine.process_counters import KernelCounts, ThreadCounts, cpu_seconds, seconds_per_fault
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
        (BUSY, 0.0, False),
        (BUSY, 0.05, False),  # other processes were busy on other cores
        (BUSY, 0.07, True),  # more than 3 % of its CPU time
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


SECONDS_PER_FAULT = 1e-6


def read_block(
    monkeypatch: pytest.MonkeyPatch, kernel: list[KernelCounts | None], **load: float | None
) -> BlockCounters:
    """Return the counters of a block of 2 s in which a worker used 3 s of CPU, on a machine with this load."""
    start = MachineCounters(10.0, 100.0, 5.0, 0, 40.0, 1.0, throttled_seconds=0.5)
    machine = [start, start._replace(seconds=12.0, busy_seconds=104.0, own_cpu_seconds=43.0, **load)]
    for name, values in (("read_counters", machine), ("cpu_seconds", [7.0, 10.0]), ("kernel_counts", kernel)):
        monkeypatch.setattr(interference, name, lambda *_, left=list(values): left.pop(0))
    monkeypatch.setattr(interference, "seconds_per_fault", lambda: SECONDS_PER_FAULT)
    return BlockMeter(1).stop()


def counts(minor_faults: int, cpu_wait_seconds: float) -> KernelCounts:
    return KernelCounts(minor_faults, 3, {1: ThreadCounts(5, 6, cpu_wait_seconds)})


def test_counters_of_a_block_are_the_changes_during_it(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"cpu_pressure_seconds": 1.25, "throttled_seconds": 0.75, "steal_seconds": 5.05}
    found = read_block(monkeypatch, [counts(1000, 1.0), counts(3000, 1.5)], **changes)
    numbers = {name: pytest.approx(value) for name, value in msgspec.structs.asdict(found).items() if value is not None}
    assert numbers == {
        **{"wall_seconds": 2.0, "cpu_seconds": 3.0, "other_process_cpu_seconds": 1.0, "steal_seconds": 0.05},
        **{"cpu_pressure_seconds": 0.25, "throttled_seconds": 0.25, "cpu_wait_seconds": 0.5, "affected": True},
        **{"minor_faults": 2000, "major_faults": 0, "voluntary_switches": 0, "involuntary_switches": 0},
        **{"page_fault_seconds": 2000 * SECONDS_PER_FAULT, "reruns": 0},
    }


@pytest.mark.parametrize(("waited", "affected"), [(0.05, False), (0.5, True)])
def test_a_block_is_affected_by_the_wait_of_its_own_worker(
    waited: float, affected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pressure is that of the whole machine, whose other cores may be busy."""
    kernel: list[KernelCounts | None] = [counts(0, 1.0), counts(0, 1.0 + waited)]
    assert read_block(monkeypatch, kernel, cpu_pressure_seconds=3.0).affected is affected


@pytest.mark.parametrize("kernel", [[None, None], [None, counts(9, 0.0)], [counts(9, 0.0), None]])
def test_without_counts_of_the_worker_the_pressure_decides(
    kernel: list[KernelCounts | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read_block(monkeypatch, kernel, cpu_pressure_seconds=1.5)
    assert (found.affected, found.cpu_wait_seconds, found.page_fault_seconds) == (True, None, 0.0)
    assert not read_block(monkeypatch, kernel, cpu_pressure_seconds=1.05).affected


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
