"""The node program as a child process, and `--on local`, which runs it on this machine."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO

from polybench.cluster.executor import Event, Node
from polybench.cluster.messages import LAST_MESSAGES, Message, NodeLost, Stop, Task, decode_lines, encode_line
from polybench.errors import BadInput
from polybench.machine import interrupts
from polybench.protocol.interpreter import OWN_INTERPRETER
from polybench.schema.options import SINGLE_MACHINE, MachineGroup

_ERROR_LINES = 3
_MAX_LINE_LENGTH = 300


class NodeProcess:
    """A node program and the connection to it.

    It exits with its parent, which holds the other end of its standard input.
    """

    def __init__(self, task: Task, environment: Mapping[str, str] = os.environ) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [OWN_INTERPRETER.executable, "-P", "-m", "polybench.cluster.node"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=OWN_INTERPRETER.with_python_path(environment),
            start_new_session=True,  # Ctrl-C reaches only the driver
        )
        self._partial_line = b""
        self._write(encode_line(task))

    def fileno(self) -> int:
        """Return the file descriptor to wait for before `receive`."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def receive(self) -> list[Message]:
        """Return new messages; blocks until there are some. NodeLost is the last message."""
        chunk = os.read(self.fileno(), 1 << 20)
        if not chunk:
            return [NodeLost(self._exit_reason())]
        messages, self._partial_line = decode_lines(self._partial_line + chunk)
        return messages

    def is_readable(self, seconds: float) -> bool:
        """Return True if there is something to receive within that time."""
        return bool(select.select([self], [], [], seconds)[0])

    def stop(self) -> None:
        """Request the end of the study, like Ctrl-C."""
        self._write(encode_line(Stop()))

    def close(self) -> None:
        """Kill the process if it still runs."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # the kernel then kills its workers
        self._process.wait()
        self._errors.close()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `receive` detects its end
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _exit_reason(self) -> str:
        code = self._process.wait()
        name = signal.Signals(-code).name if code < 0 else ""
        status = f"was killed by {name}" if name else f"exited with code {code}"
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        last = [line.strip()[:_MAX_LINE_LENGTH] for line in lines if line.strip()][-_ERROR_LINES:]
        return "; ".join([f"the node program {status}", *last])


class LocalExecutor:
    """Runs each group on this machine, which counts as any class of machine; useful to try a cluster run."""

    def __init__(self, target: str) -> None:
        if target != "local":
            raise BadInput(f"--on {target}: local takes no address; use --on local")
        self._queue: deque[tuple[str, Task]] = deque()
        self._running: tuple[str, NodeProcess] | None = None
        self._lost_events: list[Event] = []

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        """Warn if several machine groups run on this one machine."""
        if len(groups) == 1:
            return []
        labels = ", ".join(group.label for group in groups)
        return [f"--on local: {labels} all run on this machine, one after another"]

    def nodes(self) -> list[Node]:
        """Return this machine."""
        return [Node(SINGLE_MACHINE[0])]

    def start(self, group: MachineGroup, task: Task, preferred_host: str | None = None) -> None:  # noqa: ARG002
        """Queue the task after those that were started before."""
        self._queue.append((group.label, task))

    def events(self, seconds: float) -> list[Event]:
        """Return messages of the running process."""
        if self._lost_events:
            lost_events, self._lost_events = self._lost_events, []
            return lost_events
        if self._running is None:
            if not self._queue:
                return []
            label, task = self._queue.popleft()
            self._running = label, NodeProcess(task)
        label, process = self._running
        with interrupts.interruptible():
            is_readable = process.is_readable(seconds)
        messages = process.receive() if is_readable else []
        if any(isinstance(message, LAST_MESSAGES) for message in messages):
            process.close()
            self._running = None
        return [Event(label, message) for message in messages]

    def stop(self) -> None:
        """Stop the running process and remove the queued tasks."""
        if self._running is not None:
            self._running[1].stop()
        lost = NodeLost("it was not started", can_retry=False)
        self._lost_events += [Event(label, lost) for label, _ in self._queue]
        self._queue.clear()

    def close(self) -> None:
        """End the running process."""
        self._queue.clear()
        running, self._running = self._running, None
        if running is not None:
            running[1].close()
