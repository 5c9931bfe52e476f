"""Runs programs side by side within a time limit, each in a session of its own with its output in files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

GRACE_SECONDS = 8.0
"""Seconds between SIGINT, after which polybench saves its results, and SIGKILL."""
_READY_SECONDS = 60.0


class Command(NamedTuple):
    """Arguments of `python -m`; `name` is part of its file names."""

    name: str
    arguments: tuple[str, ...]


class Done(NamedTuple):
    """A finished command; `code` is None if it was stopped at the time limit."""

    command: Command
    code: int | None
    seconds: float
    folder: Path

    @property
    def output(self) -> Path:
        """Path of its document, if it wrote one."""
        return self.folder / f"{self.command.name}.json"

    def last_words(self) -> str:
        """Return the last line of its standard error."""
        lines = self.folder.joinpath(f"{self.command.name}.log").read_text("utf-8", "replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def run(commands: Sequence[Command], folder: Path, seconds: float, environment: Mapping[str, str]) -> list[Done]:
    """Run all commands at the same time in the repository; each has `seconds`."""
    folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(_started(one, folder, environment)) for one in commands]
        ended = _wait(processes, start + seconds)
    return [Done(command, code, at - start, folder) for command, (code, at) in zip(commands, ended, strict=True)]


@contextlib.contextmanager
def beside(command: Command, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Run a background program; yield the line that it prints when it is ready, or "" if it ended before."""
    folder.mkdir(parents=True, exist_ok=True)
    with _started(command, folder, environment) as process:
        output = folder / f"{command.name}.out"
        deadline = time.monotonic() + _READY_SECONDS
        while not output.read_text("utf-8") and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        yield output.read_text("utf-8").strip() if process.poll() is None else ""


@contextlib.contextmanager
def _started(command: Command, folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    line = [sys.executable, "-m", *command.arguments]
    folder.joinpath(f"{command.name}.command").write_text(" ".join(line) + "\n", "utf-8")
    with (
        folder.joinpath(f"{command.name}.out").open("wb") as out,
        folder.joinpath(f"{command.name}.log").open("wb") as log,
        subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=out, stderr=log, env=environment, start_new_session=True
        ) as process,
    ):
        try:
            yield process
        finally:
            _end(process)


def _wait(processes: Sequence[subprocess.Popen[bytes]], deadline: float) -> list[tuple[int | None, float]]:
    """Return exit code and end of each program; at the deadline, stop all that are left."""
    ended = {}
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(max(0.0, deadline - time.monotonic()))
            ended[process.pid] = code, time.monotonic()
    late = [process for process in processes if process.pid not in ended]
    for process in late:
        process.send_signal(signal.SIGINT)
    last = time.monotonic() + GRACE_SECONDS
    for process in late:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, last - time.monotonic()))
    return [ended.get(process.pid, (None, time.monotonic())) for process in processes]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the remaining processes of a session, whose leader has the group's ID."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
