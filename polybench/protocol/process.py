"""Worker processes: their pipes, and how they end.

Each worker has a process session of its own, so Ctrl-C reaches only the parent. The parent requests it to close,
then terminates it, then kills it. If the parent dies, the kernel kills the worker. The parent blocks only on
a pipe.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from multiprocessing import connection
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from polybench.data.disk import open_without_link
from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.machine import interrupts, memory
from polybench.protocol import calls
from polybench.protocol.calls import Answer, AnswerT, NotAvailable, Request, RequestFailed
from polybench.protocol.environment import inherited_env_vars
from polybench.protocol.interpreter import OWN_INTERPRETER, Interpreter

_GRACE_SECONDS = 5.0
_KILL_SECONDS = 60.0
"""A killed process returns its memory before it ends, which takes long on a busy machine."""
_LOG_LINES = 5
_LOG_TAIL_BYTES = 1 << 16
_MAX_LOG_LINE_CHARACTERS = 300
_MAX_LOG_BYTES = 1 << 22
_CUT_MARK = b"\n[...]\n"
_MAX_RESPONSE_BYTES = 1 << 26
_MAX_POLL_SECONDS = 2_000_000.0
"""Just below the limit of poll(2), which counts milliseconds in 32 bits."""


class WorkerProcess:
    """A child process, the requests to it and its answers.

    `environment` is added to the user's own. Its standard output and error are appended to `log_path` when it ends.
    Until then they are in a file without a name, so that a large log leaves nothing behind if this process is killed.
    """

    def __init__(self, environment: Mapping[str, str], log_path: Path, python: Interpreter = OWN_INTERPRETER) -> None:
        self.log_path = log_path
        self._log = _open_log(log_path.parent)  # `kill` closes it
        fcntl.fcntl(self._log, fcntl.F_SETFL, os.O_APPEND)  # children may open it again
        requests_read, requests_write = os.pipe()
        responses_read, responses_write = os.pipe()
        self._kills_before = memory.kill_count()
        protocol_variables = {
            "POLYBENCH_PARENT": str(os.getpid()),
            "POLYBENCH_REQUESTS_FD": str(requests_read),
            "POLYBENCH_RESPONSES_FD": str(responses_write),
            "POLYBENCH_STARTED": repr(time.monotonic()),
        }
        inherited = {**inherited_env_vars(os.environ), **environment}
        try:
            self._process = subprocess.Popen(
                # -P: Python does not import modules from the current folder.
                [python.executable, "-P", "-m", "polybench.worker"],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**python.with_python_path(inherited), **protocol_variables},
                pass_fds=(requests_read, responses_write),
                start_new_session=True,
            )
        except BaseException:
            self._log.close()
            os.close(requests_write)
            os.close(responses_read)
            raise
        finally:
            os.close(requests_read)
            os.close(responses_write)
        self._requests_fd = requests_write
        self._responses_fd = responses_read
        self._buffer = bytearray()

    @property
    def pid(self) -> int:
        """Process ID, for meters that observe the worker from outside."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """True once the end of the process has been observed."""
        return self._process.returncode is not None

    def request(self, request: Request[AnswerT], timeout: float) -> AnswerT:
        """Send a request and block until its answer.

        Raises ConfigurationFailed if the worker failed, died, hung for `timeout` seconds, or sent another answer, and
        EngineUnavailable if it reports that this machine cannot run the engine.
        """
        self.send(request)
        return self.receive(request, timeout)

    def send(self, request: Request[Any]) -> None:
        """Send a request without waiting, so that several workers can work in parallel."""
        if self._requests_fd < 0:
            raise ConfigurationFailed(f"cannot send request {request.call.name}: the worker has ended")
        # `receive` finds the closed pipe of a dead worker, and reports why it ended.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._requests_fd, calls.encode(request))

    def receive(self, request: Request[AnswerT], timeout: float) -> AnswerT:
        """Block until the answer to a request that was sent; raises the errors of `request`."""
        answer = self._next_answer(request, timeout)
        if answer.call != request.call.name:
            self.kill()  # later answers would not match their requests
            raise ConfigurationFailed(f"unexpected response to {request.call.name}: {answer.call}")
        value: AnswerT = answer.value
        return value

    def _next_answer(self, request: Request[Any], timeout: float) -> Answer[Any]:
        line = self._read_line(request, timeout)
        try:
            reply = calls.decode_reply(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            self.kill()
            raise ConfigurationFailed(f"invalid response to {request.call.name}: {line[:60]!r} ({error})") from None
        if isinstance(reply, RequestFailed):
            raise ConfigurationFailed(reply.reason)
        if isinstance(reply, NotAvailable):
            raise EngineUnavailable(reply.reason, reply.hint)
        return reply

    def _read_line(self, request: Request[Any], timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > _MAX_RESPONSE_BYTES:
                self.kill()
                raise ConfigurationFailed(
                    f"response to {request.call.name} is too long: {searched >> 20} MiB without an end"
                )
            if not _wait_until_readable(self._responses_fd, deadline - time.monotonic()):
                self.kill()
                raise ConfigurationFailed(
                    f"timed out: no response to {request.call.name} within {timeout:g} s (--timeout)"
                )
            chunk = os.read(self._responses_fd, 1 << 16)
            if not chunk:
                raise ConfigurationFailed(self._describe_exit())
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _describe_exit(self) -> str:
        """Describe how the process ended, without its output, which may contain anything."""
        ended = self._wait_for_exit(_GRACE_SECONDS)
        self.kill()
        if not ended:
            return "closed its pipe without a response"
        code = self._process.returncode
        if code == -signal.SIGKILL:
            cause = self._describe_kill()
        elif code < 0:
            cause = f"was killed by {signal.Signals(-code).name}"
        else:
            cause = f"exited with code {code}"
        return f"the worker {cause}"

    def _describe_kill(self) -> str:
        """Describe a SIGKILL; the kernel only counts out-of-memory kills of the whole machine."""
        kills = memory.kill_count()
        if kills is None or self._kills_before is None:
            return "was killed by SIGKILL (the kernel sends it when memory runs out)"
        if kills > self._kills_before:
            return "was killed: probably out of memory (SIGKILL, and the kernel's out-of-memory count rose)"
        return "was killed by SIGKILL from another process (the machine was not out of memory)"

    def close(self) -> None:
        """Ask the worker to end, wait a few seconds, then kill it."""
        try:
            if self._process.returncode is None and not self._wait_for_exit(0):
                with contextlib.suppress(ConfigurationFailed, EngineUnavailable):
                    request = calls.close()
                    self.send(request)
                    while self._next_answer(request, _GRACE_SECONDS).call != request.call.name:
                        pass  # the answer to an earlier request
                    self._wait_for_exit(_GRACE_SECONDS)
        finally:  # also after an interrupt
            self.kill()

    def kill(self) -> None:
        """Terminate, then kill, the worker and its children. Safe to call again."""
        if self._process.returncode is None:
            if not self._wait_for_exit(0):
                self._signal_group(signal.SIGTERM)
                self._wait_for_exit(1.0)
            # Before the process is reaped: afterwards another process group may have the same ID.
            self._signal_group(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # blocked in the kernel, by a failed disk for example
                self._process.wait(_KILL_SECONDS)
            self._save_log()
        for name in ("_requests_fd", "_responses_fd"):
            if (descriptor := getattr(self, name)) >= 0:
                os.close(descriptor)
                setattr(self, name, -1)

    def _save_log(self) -> None:
        """Save the log, without its middle if it is too large to read."""
        with contextlib.suppress(OSError, ValueError), self._log as file:  # ValueError: it is saved
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            log = file.read(_MAX_LOG_BYTES)
            if size > _MAX_LOG_BYTES:
                half = _MAX_LOG_BYTES // 2
                file.seek(size - half)
                log = log[: half - len(_CUT_MARK)] + _CUT_MARK + file.read(half)
            with open(self.log_path, "ab", opener=open_without_link) as saved:
                saved.write(log)

    def _wait_for_exit(self, seconds: float) -> bool:
        """Return whether the process ends within this time, without reaping it."""
        deadline = time.monotonic() + seconds
        with contextlib.suppress(ChildProcessError):  # already reaped
            while os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.01)
        return True

    def _signal_group(self, number: signal.Signals) -> None:
        # The worker leads its session, so its process group includes its children.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.kill()


def wait_for_any(workers: Mapping[str, WorkerProcess], timeout: float) -> list[str]:
    """Return the names of the workers that have answered or ended, as soon as there is one."""
    names = {worker._responses_fd: name for name, worker in workers.items()}
    with interrupts.interruptible():
        return [names[descriptor] for descriptor in connection.wait([*names], timeout) if isinstance(descriptor, int)]


def _wait_until_readable(descriptor: int, seconds: float) -> bool:
    """Return whether there is data, or the other end has closed, within this time."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    with interrupts.interruptible():
        return seconds > 0 and bool(poll.poll(min(seconds, _MAX_POLL_SECONDS) * 1000))


def _open_log(folder: Path) -> BinaryIO:
    """Open a file without a name, in the folder of logs if possible: no log is worth a measurement."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=folder)
    except OSError:  # the folder became a file, for example
        return tempfile.TemporaryFile()


def last_log_lines(log: Path) -> list[str]:
    """Return the last lines of a worker's log; none if it cannot be read."""
    lines: list[str] = []
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        lines = file.read(_LOG_TAIL_BYTES).decode("utf-8", "replace").splitlines()
    return [line.strip()[:_MAX_LOG_LINE_CHARACTERS] for line in lines if line.strip()][-_LOG_LINES:]
