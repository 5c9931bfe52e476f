"""Memory that runs out, for real: of one process, and of a control group."""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from polybench.core.document.study import StudyDocument
from polybench.machine import out_of_memory
from tests.measuring.test_faults import When
from tests.measuring.test_study import run, small_data

__all__ = ["small_data"]


def _hungry() -> Iterator[psutil.Process]:
    """The worker of the cell that will eat, by its log."""
    for child in psutil.Process().children():
        if "hungry" in os.readlink(f"/proc/{child.pid}/fd/1"):  # noqa: PTH115 - a link that is no path
            yield child


def _starved(limit: Callable[[psutil.Process], None]) -> StudyDocument:
    """A study in which the memory of one worker is limited before it eats."""

    def starve() -> None:
        (worker,) = _hungry()
        limit(worker)

    listener = When("round 1", starve)
    return run("fake", "fake+hungry", listener=listener, processes=1, rounds=2, parity=False, metrics=False)


def _others_are_intact(document: StudyDocument) -> bool:
    fake, hungry = document.results
    return fake.status == "ok" and fake.measured and hungry.status == "failed" and bool(hungry.log)


def test_a_worker_that_gets_no_more_memory_is_a_row_that_says_so() -> None:
    def limit(worker: psutil.Process) -> None:
        most = worker.memory_info().vms + (200 << 20)
        resource.prlimit(worker.pid, resource.RLIMIT_AS, (most, most))

    document = _starved(limit)
    assert _others_are_intact(document)
    assert document.results[1].reason == "out of memory in measure"


@contextlib.contextmanager
def control_group() -> Iterator[Path]:
    """A group of its own for memory, of version 1 or 2."""
    root = Path("/sys/fs/cgroup")
    parent = root / "memory" if (root / "memory").is_dir() else root
    group = parent / f"polybench-test-{secrets.token_hex(4)}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error.strerror}")
    try:
        if not ((group / "memory.max").exists() or (group / "memory.limit_in_bytes").exists()):
            pytest.skip("control groups limit no memory here")
        yield group
    finally:
        group.rmdir()


def test_a_worker_that_the_kernel_ends_for_want_of_memory_is_a_row_that_says_so() -> None:
    if out_of_memory.kills() is None:
        pytest.skip("this kernel does not count whom it ends")

    def limit(worker: psutil.Process) -> None:
        most = next(
            path for name in ("memory.max", "memory.limit_in_bytes") if (path := group / name).exists()
        )
        most.write_text(str(200 << 20))
        (group / "cgroup.procs").write_text(str(worker.pid))

    with control_group() as group:
        document = _starved(limit)
    assert _others_are_intact(document)
    assert "the worker was killed: probably out of memory" in (document.results[1].reason or "")


def test_a_kernel_that_does_not_count_is_no_answer(tmp_path: Path) -> None:
    counters = tmp_path / "vmstat"
    assert out_of_memory.kills(counters) is None
    counters.write_text("nr_free_pages 1\n")
    assert out_of_memory.kills(counters) is None
    counters.write_text("nr_free_pages 1\noom_kill 7\n")
    assert out_of_memory.kills(counters) == 7
