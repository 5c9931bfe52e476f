"""When a block counts as disturbed; and a real process that is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polybench.core.document.resources import BlockReading
from polybench.machine.disturbance import BlockMeter, disturbed, severity
from polybench.machine.noise import Load

QUIET = Load(seconds=1.0, others=0.02, steal=0.0, swapped_bytes=0, pressure=0.5)
BUSY = QUIET._replace(others=0.9)
STOLEN = QUIET._replace(steal=0.1)


@pytest.mark.parametrize(
    ("load", "run_delay", "expected"),
    [
        (QUIET, 0.0, False),
        (QUIET, 0.9, False),  # more threads than cores: it waited for itself
        (BUSY, 0.01, False),  # others were busy on other cores
        (BUSY, 0.5, True),
        (STOLEN, 0.0, True),  # what the hypervisor takes is no waiting
        (BUSY, None, True),  # no schedstat: the pressure tells
        (BUSY._replace(pressure=0.0), None, False),
        (BUSY._replace(pressure=None), None, True),  # neither: that others were busy has to do
        (BUSY._replace(seconds=0.05), 0.5, False),  # a few ticks
    ],
)
def test_who_kept_a_worker_from_its_cores(load: Load, run_delay: float | None, expected: bool) -> None:
    assert disturbed(load, cpu_seconds=2.0, run_delay=run_delay) is expected


def test_the_least_disturbed_is_the_one_that_waited_least() -> None:
    little = BlockReading(1.0, 2.0, others_cpu_seconds=0.2, steal_seconds=0.0, run_delay_seconds=0.1)
    much = BlockReading(1.0, 1.2, others_cpu_seconds=0.8, steal_seconds=0.0, run_delay_seconds=0.8)
    assert severity(little) < severity(much)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel keeps no schedstat")
def test_a_process_that_shares_its_core_waits_for_it() -> None:
    """Two of ours on one core: each waits for the other, but nobody else is to blame."""
    core = min(os.sched_getaffinity(0))
    burn = "while True: pass"
    command = ["taskset", "-c", str(core), sys.executable, "-c", burn]
    with subprocess.Popen(command) as one, subprocess.Popen(command) as two:
        try:
            time.sleep(0.3)
            meter = BlockMeter(one.pid, seconds_per_fault=1e-6)
            time.sleep(0.5)
            reading = meter.stop()
        finally:
            one.kill()
            two.kill()
    assert reading.run_delay_seconds is not None
    assert 0.1 < reading.run_delay_seconds < 0.6
    assert 0.0 < reading.cpu_seconds < reading.wall_seconds
    assert reading.minor_faults is not None
    assert reading.fault_seconds == pytest.approx(1e-6 * reading.minor_faults)
