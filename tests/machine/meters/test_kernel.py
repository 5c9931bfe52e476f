"""What the kernel counts of a process, of real ones and of written ones."""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path

import pytest

from polybench.machine.meters.kernel import (
    KernelCounts,
    ThreadCounts,
    kernel_counts,
    seconds_per_fault,
)

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
    assert PAGES <= after.since(before).minor_faults < 2 * PAGES


def test_switches_of_a_thread_that_began_meanwhile_are_counted() -> None:
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
    assert after.since(before).voluntary_switches >= 20


def test_a_process_that_is_gone_has_no_counts() -> None:
    assert kernel_counts(2**22 - 1) is None


def written(proc: Path, schedstat: str | None) -> Path:
    task = proc / "7" / "task" / "7"
    task.mkdir(parents=True)
    (proc / "7" / "stat").write_text("7 (a) name) S 1 7 7 0 -1 0 41 0 3 0 5 6 0 0")
    (task / "status").write_text("Name:\ta\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n")
    if schedstat is not None:
        (task / "schedstat").write_text(schedstat)
    return proc


def test_what_the_files_say(tmp_path: Path) -> None:
    counts = kernel_counts(7, written(tmp_path, "900 2500000000 4\n"))
    assert counts == KernelCounts(41, 3, {7: ThreadCounts(5, 2, 2.5)})


@pytest.mark.parametrize("schedstat", [None, "", "off"], ids=["absent", "empty", "nonsense"])
def test_a_kernel_without_schedstat_does_not_say_the_delay(tmp_path: Path, schedstat: str | None) -> None:
    counts = kernel_counts(7, written(tmp_path, schedstat))
    assert counts is not None
    assert counts.since(counts).run_delay_seconds is None


def test_a_fault_costs_something() -> None:
    assert 1e-8 < seconds_per_fault() < 1e-3
