"""Waits for something that other processes do, without a fixed time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import psutil

from polybench.protocol.process import WorkerProcess

TIMEOUT = 60.0
"""Seconds, so that a failing test does not wait forever."""


def becomes_true(condition: Callable[[], object]) -> bool:
    """Return True as soon as the condition holds, False after the timeout."""
    deadline = time.monotonic() + TIMEOUT
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(holds)


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def have_ended(processes: list[psutil.Process]) -> bool:
    """Return True as soon as all processes have ended, False after the timeout."""
    return becomes_true(lambda: all(map(has_ended, processes)))


def worker_with_log(name: str) -> psutil.Process:
    """Return the running worker of this process whose log has this text in its name."""
    workers = [one for one in gc.get_objects() if type(one) is WorkerProcess]  # isinstance imports lazy modules
    (worker,) = [one for one in workers if name in one.log_path.name and not one.has_ended]
    return psutil.Process(worker.pid)
