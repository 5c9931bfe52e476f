"""The folder by which a driver and a job talk: a file system that nodes share is what SLURM's clusters have.

Each file has one writer. A network file system shows what others wrote to whoever opens a file anew, so
nothing is kept open between two looks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from polybench.data.disk import replacing
from polybench.fleet.messages import (
    Finished,
    Hello,
    Message,
    Saved,
    Task,
    line_of,
    message_decoder,
    request_decoder,
)

BEAT_SECONDS = 30.0
"""Between two signs of life of a driver."""

_STOP = "stop"
"""In place of one: the job is to end as Ctrl-C ends a study."""


class JobFolder:
    """What belongs to the job of one machine group.

    Args:
        path: a folder that driver and nodes see by the same name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "log"
        """Of submitit, and what the job printed."""
        self._task, self._said = path / "task.json", path / "messages.jsonl"
        self._driver, self._lost, self._job = path / "driver", path / "lost", path / "job"

    def begin(self, task: Task) -> None:
        """The driver's first act: what is to be done."""
        self.path.mkdir(parents=True)
        self.beat()
        with replacing(self._task) as file:
            file.write(line_of(task))

    def belongs_to(self, job: str) -> None:
        """Note the job's ID, for a driver that comes after one that was killed."""
        self._job.write_text(job)

    def job(self) -> str | None:
        """The ID of its job; None where none was submitted."""
        return _text(self._job)

    def beat(self) -> None:
        """The driver lives."""
        self._say(f"lives at {time.time()}")

    def ask_to_stop(self) -> None:
        """The driver wants no more."""
        self._say(_STOP)

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError), replacing(self._driver) as file:
            file.write(text.encode())

    def is_to_stop(self) -> bool:
        """Whether the driver asked for it."""
        return self.heard() == _STOP

    def heard(self) -> str:
        """What the driver said last; clocks of nodes differ, so only that it changes says something."""
        return _text(self._driver) or ""

    def task(self) -> Task:
        """What the job is to do: going on from what was kept, where it ran before."""
        task = request_decoder.decode(self._task.read_bytes())
        assert isinstance(task, Task)
        return task

    def lose(self, reason: str) -> None:
        """Why the node program ended without its last message, where the job knows."""
        self._lost.write_text(reason)

    def why_lost(self) -> str | None:
        """The same, for the driver."""
        return _text(self._lost)

    @contextlib.contextmanager
    def said(self) -> Iterator[BinaryIO]:
        """What the job says goes there, behind what it has said before it was requeued."""
        with self._said.open("ab") as file:
            if file.tell() and not self._said.read_bytes().endswith(b"\n"):
                file.write(b"\n")  # it was killed while it wrote
            yield file

    def read(self, offset: int = 0) -> tuple[list[Message], int]:
        """What was said behind an offset, and the offset of what will be; half a line waits for its rest."""
        try:
            with self._said.open("rb") as file:
                file.seek(offset)
                text = file.read()
        except FileNotFoundError:
            return [], offset
        whole, _, _ = text.rpartition(b"\n")
        lines = whole.split(b"\n") if whole else []
        return [message for line in lines for message in _message(line)], offset + len(whole) + bool(whole)

    def is_complete(self) -> bool:
        """Whether the job said its last, and left nothing to do."""
        said = self.read()[0]
        states = [message.state for message in said if isinstance(message, Saved)]
        return bool(states) and states[-1] is None and isinstance(said[-1], Finished)

    def begun(self) -> tuple[str | None, bytes | None]:
        """The host that the job ran on last, and what is needed to go on there; None where there is none."""
        host, state = None, None
        for message in self.read()[0]:
            if isinstance(message, Hello):
                state = state if message.hostname == host else None
                host = message.hostname
            elif isinstance(message, Saved):
                state = message.state
        return host, state


def tell(file: BinaryIO, message: Message) -> None:
    """Say it so that other nodes can read it."""
    file.write(line_of(message))
    file.flush()
    os.fsync(file.fileno())


def _message(line: bytes) -> Iterator[Message]:
    """None where it was cut off: the job was killed while it wrote."""
    with contextlib.suppress(msgspec.MsgspecError):
        yield message_decoder.decode(line)


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
