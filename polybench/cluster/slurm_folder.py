"""Folder for messages between a driver and a job, on the file system that the nodes of a SLURM cluster share.

Each file has one writer. A network file system shows changes to a file only when it is opened, so no file
stays open between two reads.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from polybench.cluster.messages import (
    Finished,
    Message,
    Saved,
    Started,
    Task,
    encode_line,
    message_decoder,
    request_decoder,
)
from polybench.data.disk import atomic_write

HEARTBEAT_SECONDS = 30.0
"""Interval between two heartbeats of a driver."""

_STOP = "stop"
"""Replaces the heartbeat: the job is to end like a study after Ctrl-C."""


class JobFolder:
    """Folder of the job of one machine group.

    Args:
        path: a folder with the same path for driver and nodes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "log"
        """Files of submitit, and the job's output."""
        self._task, self._messages = path / "task.json", path / "messages.jsonl"
        self._driver, self._loss_reason, self._job_id = path / "driver", path / "lost", path / "job"

    def create(self, task: Task) -> None:
        """Create the folder with the task."""
        self.path.mkdir(parents=True)
        self.heartbeat()
        with atomic_write(self._task) as file:
            file.write(encode_line(task))

    def set_job_id(self, job: str) -> None:
        """Store the job's ID, for the next driver if this one is killed."""
        self._job_id.write_text(job)

    def job_id(self) -> str | None:
        """Return the job's ID; None if no job was submitted."""
        return _read_text(self._job_id)

    def heartbeat(self) -> None:
        """Write the driver's heartbeat."""
        self._write_driver_file(f"alive at {time.time()}")

    def request_stop(self) -> None:
        """Request the job to stop."""
        self._write_driver_file(_STOP)

    def _write_driver_file(self, text: str) -> None:
        with contextlib.suppress(OSError), atomic_write(self._driver) as file:
            file.write(text.encode())

    def is_stop_requested(self) -> bool:
        """Return True if the driver requested a stop."""
        return self.last_driver_message() == _STOP

    def last_driver_message(self) -> str:
        """Return the driver's heartbeat; since the nodes' clocks differ, only its changes are significant."""
        return _read_text(self._driver) or ""

    def task(self) -> Task:
        """Return the job's task, which may have a checkpoint of an earlier job."""
        task = request_decoder.decode(self._task.read_bytes())
        assert isinstance(task, Task)
        return task

    def mark_lost(self, reason: str) -> None:
        """Store the reason why the node program ended without its last message."""
        self._loss_reason.write_text(reason)

    def loss_reason(self) -> str | None:
        """Return the reason of `mark_lost`, if there is one."""
        return _read_text(self._loss_reason)

    @contextlib.contextmanager
    def open_messages(self) -> Iterator[BinaryIO]:
        """Open the job's messages for appending; a requeued job continues the file."""
        with self._messages.open("ab") as file:
            if file.tell() and not self._messages.read_bytes().endswith(b"\n"):
                file.write(b"\n")  # the job was killed while writing
            yield file

    def read_messages(self, offset: int = 0) -> tuple[list[Message], int]:
        """Read the messages after an offset, and return the next offset; an incomplete line is left for
        later.
        """
        try:
            with self._messages.open("rb") as file:
                file.seek(offset)
                text = file.read()
        except FileNotFoundError:
            return [], offset
        complete, _, _ = text.rpartition(b"\n")
        lines = complete.split(b"\n") if complete else []
        return [message for line in lines for message in _decode(line)], offset + len(complete) + bool(complete)

    def is_complete(self) -> bool:
        """Return True if the job sent its last message and has nothing left to do."""
        messages = self.read_messages()[0]
        checkpoints = [message.checkpoint for message in messages if isinstance(message, Saved)]
        return bool(checkpoints) and checkpoints[-1] is None and isinstance(messages[-1], Finished)

    def last_host(self) -> tuple[str | None, bytes | None]:
        """Return the last host of the job, and the checkpoint for resuming there; None for what is missing."""
        host, checkpoint = None, None
        for message in self.read_messages()[0]:
            if isinstance(message, Started):
                checkpoint = checkpoint if message.hostname == host else None
                host = message.hostname
            elif isinstance(message, Saved):
                checkpoint = message.checkpoint
        return host, checkpoint


def send(file: BinaryIO, message: Message) -> None:
    """Write a message so that other nodes can read it."""
    file.write(encode_line(message))
    file.flush()
    os.fsync(file.fileno())


def _decode(line: bytes) -> Iterator[Message]:
    """Yield the message, or nothing if the line is truncated because the job was killed."""
    with contextlib.suppress(msgspec.MsgspecError):
        yield message_decoder.decode(line)


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
