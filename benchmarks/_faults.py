"""What the soak does to a study while it runs."""

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

import psutil

Act = Callable[[int, Path, random.Random], None]
"""From the program's process, its results folder, and chance."""

GARBAGE = (b"no message\n", b"half a line", b"\xff\xfe\n", b'{"type": "closed"}\n', b"[" * 100_000 + b"\n")


class Fault(NamedTuple):
    """What happens, and whether the program is killed by it: then it cannot clean up."""

    act: Act
    kills_parent: bool = False


def workers(pid: int) -> list[int]:
    """All processes that were started by the program of this number, whether it lives or not."""
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
    """Into the pipe on which a worker answers."""
    if alive := workers(pid):
        worker = draw.choice(alive)
        with contextlib.suppress(OSError, psutil.Error):
            descriptor = psutil.Process(worker).environ()["POLYBENCH_ANSWERS_FD"]
            pipe = os.open(f"/proc/{worker}/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)
            with contextlib.suppress(OSError):
                os.write(pipe, draw.choice(GARBAGE))
            os.close(pipe)


def _folder_vanishes(pid: int, results: Path, draw: random.Random) -> None:  # noqa: ARG001
    shutil.rmtree(results, ignore_errors=True)


def _disk_is_full(pid: int, results: Path, draw: random.Random) -> None:  # noqa: ARG001
    """No file of the program's can be longer than this from now on."""
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
