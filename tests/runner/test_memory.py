"""Out-of-memory failures of a process and of a control group, with real memory limits."""

from __future__ import annotations

import contextlib
import resource
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from polybench.machine import memory
from polybench.schema.study import StudyDocument
from tests.processes import worker_with_log
from tests.runner.studies import CallbackOnStage, run


def _run_with_limit(limit: Callable[[psutil.Process], None]) -> StudyDocument:
    """Run a study in which the memory of one worker is limited before it allocates too much."""

    def set_limit() -> None:
        limit(worker_with_log("memory_hog"))

    listener = CallbackOnStage("round 1", set_limit)
    return run(
        "fake", "faulty+memory_hog", listener=listener, processes=1, rounds_per_process=2, parity=False, metrics=False
    )


def _only_the_memory_hog_failed(document: StudyDocument) -> bool:
    fake, memory_hog = document.results
    return fake.status == "ok" and fake.is_measured and memory_hog.status == "failed" and bool(memory_hog.log_path)


def test_a_worker_that_reaches_its_memory_limit_fails_with_the_reason() -> None:
    def limit(worker: psutil.Process) -> None:
        max_bytes = worker.memory_info().vms + (200 << 20)
        resource.prlimit(worker.pid, resource.RLIMIT_AS, (max_bytes, max_bytes))

    document = _run_with_limit(limit)
    assert _only_the_memory_hog_failed(document)
    assert document.results[1].reason == "out of memory in measure_block"


@contextlib.contextmanager
def control_group() -> Iterator[Path]:
    """Create a control group with a memory controller, of version 1 or 2."""
    root = Path("/sys/fs/cgroup")
    parent = root / "memory" if (root / "memory").is_dir() else root
    group = parent / f"polybench-test-{secrets.token_hex(4)}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"cannot create a control group: {error.strerror}")
    try:
        if not ((group / "memory.max").exists() or (group / "memory.limit_in_bytes").exists()):
            pytest.skip("control groups have no memory controller")
        yield group
    finally:
        group.rmdir()


def test_a_worker_that_the_kernel_kills_for_lack_of_memory_fails_with_the_reason() -> None:
    if memory.kill_count() is None:
        pytest.skip("this kernel does not count out-of-memory kills")

    def limit(worker: psutil.Process) -> None:
        limit_file = next(path for name in ("memory.max", "memory.limit_in_bytes") if (path := group / name).exists())
        limit_file.write_text(str(200 << 20))
        (group / "cgroup.procs").write_text(str(worker.pid))

    with control_group() as group:
        document = _run_with_limit(limit)
    assert _only_the_memory_hog_failed(document)
    assert "the worker was killed: probably out of memory" in (document.results[1].reason or "")


def test_the_kill_count_is_unknown_if_the_kernel_does_not_provide_it(tmp_path: Path) -> None:
    counters = tmp_path / "vmstat"
    assert memory.kill_count(counters) is None
    counters.write_text("nr_free_pages 1\n")
    assert memory.kill_count(counters) is None
    counters.write_text("nr_free_pages 1\noom_kill 7\n")
    assert memory.kill_count(counters) == 7
