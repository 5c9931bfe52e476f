"""Worker processes: their pipes, and how they end.

A worker lives in a process session of its own, so Ctrl-C reaches the parent alone; it is asked to
close, then terminated, then killed, and the kernel kills it when the parent dies. The parent only
ever blocks on a pipe.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from polybench.core import interrupts
from polybench.core.errors import CellFailed, Unavailable
from polybench.machine import out_of_memory
from polybench.wire.environment import inherited
from polybench.wire.interpreter import OWN, Interpreter
from polybench.wire.messages import (
    Answer,
    Close,
    Closed,
    Failed,
    Missing,
    Request,
    answer_decoder,
    encoder,
    tag,
)

A = TypeVar("A", bound=msgspec.Struct)
"""The kind of answer that a request has; see `wire.messages`."""

_GRACE_SECONDS = 5.0
_LOG_LINES = 5
_LOG_TAIL_BYTES = 1 << 16
_LONGEST_LINE = 300
"""Of a log, in a sentence."""
_LONGEST_LOG_BYTES = 1 << 24
_CUT = b"\n[...]\n"
_LONGEST_ANSWER_BYTES = 1 << 26
_LONGEST_WAIT_SECONDS = 2_000_000.0
"""What poll(2) can count in milliseconds."""


class WorkerProcess:
    """One child process and the conversation with it."""

    def __init__(self, environment: Mapping[str, str], log: Path, python: Interpreter = OWN) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        requests_read, requests_write = os.pipe()
        answers_read, answers_write = os.pipe()
        self._kills_before = out_of_memory.kills()
        own = {
            "POLYBENCH_PARENT": str(os.getpid()),
            "POLYBENCH_REQUESTS_FD": str(requests_read),
            "POLYBENCH_ANSWERS_FD": str(answers_write),
            "POLYBENCH_STARTED": repr(time.monotonic()),
        }
        given = {**inherited(os.environ), **environment}
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    # -P: a file of the current folder that is called as a module is never taken for it.
                    [python.executable, "-P", "-m", "polybench.worker"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**python.variables(given), **own},
                    pass_fds=(requests_read, answers_write),
                    start_new_session=True,
                )
        except BaseException:
            os.close(requests_write)
            os.close(answers_read)
            raise
        finally:
            os.close(requests_read)
            os.close(answers_write)
        self._requests = requests_write
        self._answers = answers_read
        self._unread = bytearray()

    @property
    def pid(self) -> int:
        """The worker's, for meters that look at it from outside."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it is known to have ended."""
        return self._process.returncode is not None

    def ask(self, request: Request, kind: type[A], timeout: float) -> A:
        """Send a request and block until its answer, which is of this kind.

        Raises:
            CellFailed: the worker failed, died, hung for `timeout` seconds, or answered nonsense.
            Unavailable: the worker says that this machine cannot run the engine.
        """
        self.send(request)
        return self.receive(request, kind, timeout)

    def send(self, request: Request) -> None:
        """Send a request without waiting; several workers then obey side by side.

        Raises:
            CellFailed: the worker was ended before.
        """
        if self._requests < 0:
            raise CellFailed(f"could not be asked to {tag(request)}: it has ended")
        # A dead worker is diagnosed by `receive`, which sees its end of the pipe closed.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._requests, encoder.encode(request) + b"\n")

    def receive(self, request: Request, kind: type[A], timeout: float) -> A:
        """Block until the answer to a request that was sent; raises as `ask` does."""
        answer = self._next_answer(request, timeout)
        if not isinstance(answer, kind):
            self.kill()  # whatever comes next would answer something else, too
            raise CellFailed(f"answered {tag(request)} with {tag(answer)}")
        return answer

    def _next_answer(self, request: Request, timeout: float) -> Answer:
        line = self._read_line(request, timeout)
        try:
            answer = answer_decoder.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            self.kill()
            raise CellFailed(
                f"answered {tag(request)} with something that is no message: {line[:60]!r} ({error})"
            ) from None
        if isinstance(answer, Failed):
            raise CellFailed(answer.reason)
        if isinstance(answer, Missing):
            raise Unavailable(answer.reason, answer.remedy)
        return answer

    def _read_line(self, request: Request, timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        searched = 0
        while (end := self._unread.find(b"\n", searched)) < 0:
            searched = len(self._unread)
            if searched > _LONGEST_ANSWER_BYTES:
                self.kill()
                raise CellFailed(f"answered {tag(request)} with {searched >> 20} MiB that do not end")
            if not _readable(self._answers, deadline - time.monotonic()):
                self.kill()
                raise CellFailed(f"timed out: no answer to {tag(request)} within {timeout:g} s (--timeout)")
            chunk = os.read(self._answers, 1 << 16)
            if not chunk:
                raise CellFailed(self._how_it_ended())
            self._unread += chunk
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line

    def _how_it_ended(self) -> str:
        """How the process ended, with the last lines of its log."""
        ended = self._ended_within(_GRACE_SECONDS)
        self.kill()
        if not ended:
            return "closed its pipe without an answer"
        code = self._process.returncode
        if code == -signal.SIGKILL:
            how = self._why_killed()
        elif code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"exited with code {code}"
        return "; ".join([f"the worker {how}", *self.last_lines()])

    def _why_killed(self) -> str:
        """The kernel counts whom it ends for want of memory, on the whole machine, and names none."""
        kills = out_of_memory.kills()
        if kills is None or self._kills_before is None:
            return "was killed by SIGKILL (the kernel does that when memory runs out)"
        if kills > self._kills_before:
            return (
                "was killed: probably out of memory (SIGKILL; the kernel ended a process for that meanwhile)"
            )
        return "was killed by SIGKILL, and not for want of memory: by somebody"

    def last_lines(self) -> list[str]:
        """The end of what the worker wrote to its log."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _LOG_TAIL_BYTES))
            lines = file.read(_LOG_TAIL_BYTES).decode("utf-8", "replace").splitlines()
        return [line.strip()[:_LONGEST_LINE] for line in lines if line.strip()][-_LOG_LINES:]

    def close(self) -> None:
        """Ask the worker to end, wait a little, then make it."""
        try:
            if self._process.returncode is None and not self._ended_within(0):
                with contextlib.suppress(CellFailed, Unavailable):
                    self.send(Close())
                    while not isinstance(self._next_answer(Close(), _GRACE_SECONDS), Closed):
                        pass  # an answer to an earlier request that nobody waited for
                    self._ended_within(_GRACE_SECONDS)
        finally:  # an interrupt may end the waiting
            self.kill()

    def kill(self) -> None:
        """End the worker and whatever it started: terminate, then kill. Safe to call again."""
        if self._process.returncode is None:
            if not self._ended_within(0):
                self._signal(signal.SIGTERM)
                self._ended_within(1.0)
            # Before it is reaped: its number, which is its group's, may then be another one's.
            self._signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # in the kernel, on a dead disk
                self._process.wait(_GRACE_SECONDS)
            self._shorten_log()
        for name in ("_requests", "_answers"):
            if (descriptor := getattr(self, name)) >= 0:
                os.close(descriptor)
                setattr(self, name, -1)

    def _shorten_log(self) -> None:
        """Leave the beginning and the end of what nobody would read as a whole."""
        with contextlib.suppress(OSError), self.log.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size <= _LONGEST_LOG_BYTES:
                return
            file.seek(size - _LONGEST_LOG_BYTES // 2)
            end = file.read(_LONGEST_LOG_BYTES // 2)
            file.seek(_LONGEST_LOG_BYTES // 2 - len(_CUT))
            file.write(_CUT + end)
            file.truncate()

    def _ended_within(self, seconds: float) -> bool:
        """Whether the process ends in that time; it is left to be reaped."""
        deadline = time.monotonic() + seconds
        with contextlib.suppress(ChildProcessError):  # somebody else has reaped it
            while os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.01)
        return True

    def _signal(self, number: signal.Signals) -> None:
        # The worker leads its session, so its process group holds its own children too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.kill()


def _readable(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read, or the other end closed, within that time."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    with interrupts.waiting():
        return seconds > 0 and bool(poll.poll(min(seconds, _LONGEST_WAIT_SECONDS) * 1000))
