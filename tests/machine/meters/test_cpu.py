"""CPU time of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from polybench.machine.meters.observer import Observer
from polybench.machine.process_counters import cpu_seconds

CHILD_PROGRAM = """
import sys, time
for line in sys.stdin:
    until = time.process_time() + float(line)
    while time.process_time() < until:
        pass
    print("done", flush=True)
"""


def test_cpu_time_of_a_missing_process_is_zero() -> None:
    assert cpu_seconds(os.getpid()) > 0
    assert cpu_seconds(2**22 - 1) == 0


def test_cpu_time_of_running_children_counts_for_the_worker() -> None:
    before = cpu_seconds(os.getpid())
    command = [sys.executable, "-c", CHILD_PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        print(0.2, file=child.stdin, flush=True)
        child.stdout.readline()
        assert cpu_seconds(os.getpid()) - before > 0.18  # the kernel counts in ticks of 10 ms
        child.stdin.close()


def test_block_has_exactly_the_cpu_time_of_its_process() -> None:
    command = [sys.executable, "-c", CHILD_PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def burn(seconds: float) -> None:
            print(seconds, file=child.stdin, flush=True)
            child.stdout.readline()

        observer = Observer({"cpu"})
        burn(0.1)
        with observer.watch_block(child.pid, "cpu", []) as usage:
            burn(0.3)
        child.send_signal(signal.SIGTERM)
    # The kernel's ticks are at most 10 ms; other programs only lengthen the wall time.
    assert usage.cpu_seconds == pytest.approx(0.3, abs=0.03)
    assert usage.wall_seconds >= usage.cpu_seconds - 0.03
    assert usage.gpu is None
