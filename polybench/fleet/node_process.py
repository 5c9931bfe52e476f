"""A node program as a child of whoever runs it: the driver itself, or what an executor has on the machine."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from typing import IO

from polybench.fleet.executor import Lost
from polybench.fleet.messages import Message, Stop, Task, line_of, message_decoder
from polybench.wire.interpreter import OWN

_LOG_LINES = 3
_LONGEST_LINE = 300


class NodeProcess:
    """One node program, and the conversation with it.

    It ends with its parent, since that holds the other end of its standard input.
    """

    def __init__(self, task: Task, environment: Mapping[str, str] = os.environ) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [OWN.executable, "-P", "-m", "polybench.fleet.node"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=OWN.variables(environment),
            start_new_session=True,  # Ctrl-C reaches the driver alone
        )
        self._unread = b""
        self._write(line_of(task))

    def fileno(self) -> int:
        """What is readable when there is something to receive."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def receive(self) -> list[Message | Lost]:
        """What has come; blocks until there is something. After Lost nothing comes."""
        chunk = os.read(self.fileno(), 1 << 20)
        if not chunk:
            return [Lost(self._how_it_ended())]
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        return [message_decoder.decode(line) for line in lines]

    def readable(self, seconds: float) -> bool:
        """Whether there is something to receive within that time."""
        return bool(select.select([self], [], [], seconds)[0])

    def stop(self) -> None:
        """Tell it to end as Ctrl-C does."""
        self._write(line_of(Stop()))

    def close(self) -> None:
        """End it, at once, if it still runs."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # the kernel then ends its workers
        self._process.wait()
        self._errors.close()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # that it is gone is seen by whoever reads
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        name = signal.Signals(-code).name if code < 0 else ""
        how = f"was killed by {name}" if name else f"ended with code {code}"
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        last = [line.strip()[:_LONGEST_LINE] for line in lines if line.strip()][-_LOG_LINES:]
        return "; ".join([f"the node program {how}", *last])
