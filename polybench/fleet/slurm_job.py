"""What SLURM runs on a node: the node program, with its messages in the folder that driver and nodes share.

A job may be taken from its node and begin again, by SLURM (a preemption, a node that failed) or by submitit
(its time is over). On the same node it then goes on with the parts that are not finished.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from polybench.fleet.executor import Lost
from polybench.fleet.messages import Finished, Refused, Task, Warned
from polybench.fleet.node_process import NodeProcess
from polybench.fleet.slurm_folder import JobFolder, tell

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

_LOOK_SECONDS = 1.0
"""Between two looks at what the driver says, while the node program is silent."""

_GONE_SECONDS = 600.0
"""Without a sign of life, after which the driver is taken to be gone; login nodes are busy."""


class NodeJob:
    """The job of one machine group, as submitit calls it.

    Args:
        folder: of a JobFolder that has its task.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self) -> None:
        """Run the node program to its end."""
        folder = JobFolder(self.folder)
        task, begun_anew = _rest(folder)
        # SLURM signals all processes of a job. The node program and its workers inherit that this one is
        # ignored: a worker that is terminated would be a cell that failed.
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        process = NodeProcess(task)
        signal.signal(signal.SIGTERM, _end)
        try:
            _converse(process, folder, begun_anew)
        finally:
            process.close()
            signal.signal(signal.SIGTERM, before)

    def checkpoint(self) -> DelayedSubmission:
        """What submitit runs when the job begins again; the node program is ended, and its parts are kept."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(NodeJob(self.folder))


def _end(*_: Any) -> None:
    sys.exit(128 + signal.SIGTERM)


def _rest(folder: JobFolder) -> tuple[Task, str | None]:
    """What is left to do here; where that is all of it once more, why."""
    task, here = folder.task(), socket.gethostname()
    host, state = folder.begun()
    if host is None:
        return task, None
    if host == here:
        return msgspec.structs.replace(task, state=state or task.state), None
    why = f"began on {host}, which SLURM took from it: measured again, all of it, on {here}"
    return msgspec.structs.replace(task, state=None), why


def _converse(process: NodeProcess, folder: JobFolder, begun_anew: str | None) -> None:
    """Pass on what the node program says, and to it that the driver wants no more."""
    driver = _Driver(folder)
    with folder.said() as file:
        if begun_anew is not None:
            tell(file, Warned(begun_anew))
        while True:
            for message in process.receive() if process.readable(_LOOK_SECONDS) else ():
                if isinstance(message, Lost):
                    folder.lose(message.reason)
                    sys.exit(1)
                tell(file, message)
                if isinstance(message, Finished | Refused):
                    return
            if driver.wants_no_more():
                process.stop()


class _Driver:
    """Whether anybody is there who wants to know."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._heard, self._at = "", time.monotonic()
        self._told = False

    def wants_no_more(self) -> bool:
        """Whether it said so, or said nothing for long; once only."""
        heard, now = self._folder.heard(), time.monotonic()
        if heard != self._heard:
            self._heard, self._at = heard, now
        if self._told or not (self._folder.is_to_stop() or now - self._at > _GONE_SECONDS):
            return False
        self._told = True
        return True
