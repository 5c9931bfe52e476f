"""Job on a node of a SLURM cluster: runs the node program and writes its messages to the shared folder.

A job may be requeued by SLURM (preemption, node failure) or by submitit (time limit). On the same node it
resumes the study from its checkpoint.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from polybench.cluster.executor import NodeLost
from polybench.cluster.local import NodeProcess
from polybench.cluster.messages import Finished, Rejected, Task, WarningRaised
from polybench.cluster.slurm_folder import JobFolder, send

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

_POLL_SECONDS = 1.0
"""Interval between two reads of the driver's messages while the node program is silent."""

_DRIVER_TIMEOUT = 600.0
"""Time without a heartbeat after which the driver counts as lost; login nodes are busy."""


class NodeJob:
    """The job of one machine group, called by submitit.

    Args:
        folder: path of the JobFolder with its task.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self) -> None:
        """Run the node program to its end."""
        folder = JobFolder(self.folder)
        task, restart_reason = _remaining_task(folder)
        # SLURM sends SIGTERM to all processes of a job. The node program and its workers inherit that it is
        # ignored, since a terminated worker would be a failed configuration.
        previous_handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        process = NodeProcess(task)
        signal.signal(signal.SIGTERM, _exit_on_signal)
        try:
            _forward_messages(process, folder, restart_reason)
        finally:
            process.close()
            signal.signal(signal.SIGTERM, previous_handler)

    def checkpoint(self) -> DelayedSubmission:
        """Return what submitit runs after a restart; the study's checkpoint is already saved."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(NodeJob(self.folder))


def _exit_on_signal(*_: Any) -> None:
    sys.exit(128 + signal.SIGTERM)


def _remaining_task(folder: JobFolder) -> tuple[Task, str | None]:
    """Return the remaining task on this host, and the reason if the whole study is repeated."""
    task, this_host = folder.task(), socket.gethostname()
    host, checkpoint = folder.last_host()
    if host is None:
        return task, None
    if host == this_host:
        return msgspec.structs.replace(task, checkpoint=checkpoint or task.checkpoint), None
    reason = f"started on {host}, but SLURM moved the job: everything is measured again on {this_host}"
    return msgspec.structs.replace(task, checkpoint=None), reason


def _forward_messages(process: NodeProcess, folder: JobFolder, restart_reason: str | None) -> None:
    """Forward the node program's messages to the driver, and the driver's stop request to the node program."""
    driver = _DriverWatch(folder)
    with folder.open_messages() as file:
        if restart_reason is not None:
            send(file, WarningRaised(restart_reason))
        while True:
            for message in process.receive() if process.is_readable(_POLL_SECONDS) else ():
                if isinstance(message, NodeLost):
                    folder.mark_lost(message.reason)
                    sys.exit(1)
                send(file, message)
                if isinstance(message, Finished | Rejected):
                    return
            if driver.stop_requested():
                process.stop()


class _DriverWatch:
    """Watches for the driver's stop request and for the loss of the driver."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._last_message, self._last_change = "", time.monotonic()
        self._is_reported = False

    def stop_requested(self) -> bool:
        """Return True once if the driver requested a stop or sent no heartbeat for a long time."""
        message, now = self._folder.last_driver_message(), time.monotonic()
        if message != self._last_message:
            self._last_message, self._last_change = message, now
        if self._is_reported or not (self._folder.is_stop_requested() or now - self._last_change > _DRIVER_TIMEOUT):
            return False
        self._is_reported = True
        return True
