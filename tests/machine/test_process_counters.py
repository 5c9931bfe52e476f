"""CPU time of real processes."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from polybench.machine.meters.observer import Observer
from polybench.machine.process_counters import KernelCounts, ThreadCounts, cpu_seconds, kernel_counts, seconds_per_fault

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


PAGES = 1000


def test_page_faults_are_counted() -> None:
    before = kernel_counts(os.getpid())
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(PAGES):
            memory[page * mmap.PAGESIZE] = 1
    after = kernel_counts(os.getpid())
    assert before is not None
    assert after is not None
    assert PAGES <= after.delta(before).minor_faults < 2 * PAGES


def test_context_switches_of_a_new_thread_are_counted() -> None:
    before = kernel_counts(os.getpid())
    go, done = threading.Event(), threading.Event()

    def wait_often() -> None:
        for _ in range(20):
            threading.Event().wait(0.001)
        done.set()
        go.wait()

    thread = threading.Thread(target=wait_often)
    thread.start()
    done.wait()
    after = kernel_counts(os.getpid())
    go.set()
    thread.join()
    assert before is not None
    assert after is not None
    assert after.delta(before).voluntary_switches >= 20


def test_missing_process_has_no_counts() -> None:
    assert kernel_counts(2**22 - 1) is None


def write_proc(proc: Path, schedstat: str | None) -> Path:
    task = proc / "7" / "task" / "7"
    task.mkdir(parents=True)
    (proc / "7" / "stat").write_text("7 (a) name) S 1 7 7 0 -1 0 41 0 3 0 5 6 0 0")
    (task / "status").write_text("Name:\ta\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n")
    if schedstat is not None:
        (task / "schedstat").write_text(schedstat)
    return proc


def test_counts_are_read_from_the_kernels_files(tmp_path: Path) -> None:
    counts = kernel_counts(7, write_proc(tmp_path, "900 2500000000 4\n"))
    assert counts == KernelCounts(41, 3, {7: ThreadCounts(5, 2, 2.5)})


@pytest.mark.parametrize("schedstat", [None, "", "off"], ids=["absent", "empty", "invalid"])
def test_cpu_wait_is_unknown_without_schedstat(tmp_path: Path, schedstat: str | None) -> None:
    counts = kernel_counts(7, write_proc(tmp_path, schedstat))
    assert counts is not None
    assert counts.delta(counts).cpu_wait_seconds is None


def test_page_fault_has_a_plausible_cost() -> None:
    assert 1e-8 < seconds_per_fault() < 1e-3
