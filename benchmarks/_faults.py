"""Faults that are injected into a running study, and what such a study needs; the tests of faults use it too."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

Act = Callable[[int, Path, random.Random], None]
"""Signature of a fault: program process, results folder, random generator."""

GARBAGE = (b"no message\n", b"half a line", b"\xff\xfe\n", b'{"type": "closed"}\n', b"[" * 100_000 + b"\n")


class Fault(NamedTuple):
    """A fault, and whether it kills the program, which then cannot clean up."""

    act: Act
    kills_parent: bool = False


def write_images(folder: Path, images: int = 100) -> None:
    """Write images in CIFAR-10's format."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        labels = draw.integers(0, 10, (images // 5, 1), np.uint8)
        pixels = draw.integers(0, 256, (images // 5, 3072), np.uint8)
        np.hstack([labels, pixels]).tofile(folder / f"{name}.bin")


def restore_signals() -> None:
    """Restore the default signal handlers, because a background shell may make its children ignore signals."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def workers(pid: int) -> list[int]:
    """Return all processes that the program with this ID started, even if it has ended."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            parent = process.environ().get("POLYBENCH_PARENT")
            if parent == str(pid) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def _to_a_worker(number: signal.Signals) -> Act:
    def act(pid: int, results: Path, draw: random.Random) -> None:  # noqa: ARG001
        if alive := workers(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(draw.choice(alive), number)

    return act


def _to_the_program(*numbers: signal.Signals) -> Act:
    def act(pid: int, results: Path, draw: random.Random) -> None:  # noqa: ARG001
        for place, number in enumerate(numbers):
            if place:
                time.sleep(draw.uniform(0, 0.5))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    return act


def _garbage(pid: int, results: Path, draw: random.Random) -> None:  # noqa: ARG001
    """Write into the pipe of a worker's replies."""
    if alive := workers(pid):
        worker = draw.choice(alive)
        with contextlib.suppress(OSError, psutil.Error):
            descriptor = psutil.Process(worker).environ()["POLYBENCH_RESPONSES_FD"]
            pipe = os.open(f"/proc/{worker}/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)
            with contextlib.suppress(OSError):
                os.write(pipe, draw.choice(GARBAGE))
            os.close(pipe)


def _folder_vanishes(pid: int, results: Path, draw: random.Random) -> None:  # noqa: ARG001
    shutil.rmtree(results, ignore_errors=True)


def _disk_is_full(pid: int, results: Path, draw: random.Random) -> None:  # noqa: ARG001
    """Limit the size of all files that the program writes from now on."""
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))


FAULTS = {
    "worker killed": Fault(_to_a_worker(signal.SIGKILL)),
    "worker crashed": Fault(_to_a_worker(signal.SIGSEGV)),
    "worker stopped": Fault(_to_a_worker(signal.SIGSTOP)),
    "worker's garbage": Fault(_garbage),
    "Ctrl-C": Fault(_to_the_program(signal.SIGINT)),
    "Ctrl-C twice": Fault(_to_the_program(signal.SIGINT, signal.SIGINT)),
    "terminated": Fault(_to_the_program(signal.SIGTERM)),
    "terminal closed": Fault(_to_the_program(signal.SIGHUP)),
    "killed": Fault(_to_the_program(signal.SIGKILL), kills_parent=True),
    "results vanish": Fault(_folder_vanishes),
    "disk full": Fault(_disk_is_full),
}
