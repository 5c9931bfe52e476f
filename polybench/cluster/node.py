"""The node program, `python -m polybench.cluster.node`: measures the study of one machine group.

It reads a Task from standard input and writes messages to standard output. The study runs as on any machine
(runner.study), in a results folder of its own. After each phase its log is sent to the driver, from which it can be
resumed. If standard input is closed, the driver is gone, and the node program ends.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from polybench.cluster.messages import (
    Diagnosed,
    Finished,
    Message,
    ProgressUpdate,
    Rejected,
    Saved,
    StageChanged,
    Started,
    Task,
    TimeLeft,
    WarningRaised,
    current_fingerprint,
    differences,
    encode_line,
    package_versions,
    request_decoder,
)
from polybench.errors import BadInput, PolybenchError
from polybench.log import Failed, Log, StudyEnded
from polybench.machine import host, interrupts
from polybench.protocol.interpreter import OWN_INTERPRETER
from polybench.run import resume_study, run_study
from polybench.runner.doctor import diagnose
from polybench.runner.progress import ConfigurationProgress, NullProgress
from polybench.runner.scratch import scratch_folder
from polybench.storage.store import Store

Send = Callable[[Message], None]

_MAX_LOG_BYTES = 1 << 20
"""Maximum size of a failed worker's log; only its end is sent."""


def run_task(task: Task, send: Send) -> None:
    """Run a task in this process, and send messages until Finished or Rejected."""
    try:
        if problems := differences(task.fingerprint, current_fingerprint()):
            raise BadInput("; ".join(problems))
        send(Started(hostname=socket.gethostname(), versions=package_versions(task.study)))
        if task.diagnose:
            send(StageChanged("looking for engines"))
            send(Diagnosed(diagnose()))
        else:
            with scratch_folder() as folder:
                _measure(task, send, folder)
        send(Finished())
    except PolybenchError as error:
        send(Rejected(str(error), error.exit_code))
    except KeyboardInterrupt:
        send(Rejected("interrupted before anything was measured", 130))


def _measure(task: Task, send: Send, folder: Path) -> None:
    """Run or resume one study in a results folder of its own."""
    store, progress, header = StreamingStore(folder, send), StreamingProgress(send), task.header
    with interrupts.defer_signals():
        if task.log is not None:
            store.log_path(header.id).write_bytes(task.log)
            resume_study(header.id, progress, store=store, strict=task.strict, anonymous=header.anonymous)
            return
        header = msgspec.structs.replace(header, host=host.this_host(), polybench=host.tool_version())
        run_study(task.study, progress, store=store, header=header, strict=task.strict, parity_check=task.parity_check)


class StreamingStore(Store):
    """A results folder for one study, which sends its log after each phase."""

    def __init__(self, folder: Path, send: Send) -> None:
        super().__init__(folder)
        self._send = send

    def publish(self, log: Log) -> None:
        """Send the log, even if this disk is full, and with the end of the study the logs of failed workers."""
        has_ended = isinstance(log.events[-1], StudyEnded)
        self._send(Saved(log.text, self._read_logs(log) if has_ended else {}))

    def _read_logs(self, log: Log) -> dict[str, bytes]:
        """Return the logs of failed workers, whose folder is deleted with this store."""
        folder = self.folder / "logs" / log.header.id  # an anonymous log lacks this path
        failures = [event.log_path for event in log.events if isinstance(event, Failed) and event.log_path is not None]
        paths = [folder / Path(path).name for path in failures]
        return {path.name: path.read_bytes()[-_MAX_LOG_BYTES:] for path in paths if path.is_file()}


class StreamingProgress(NullProgress):
    """Sends progress reports to the driver."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def on_stage(self, text: str) -> None:
        """Send the stage."""
        self._send(StageChanged(text))

    def on_time_left(self, seconds: float) -> None:
        """Send the remaining time."""
        self._send(TimeLeft(seconds))

    def on_configurations(self, configurations: Sequence[ConfigurationProgress]) -> None:
        """Send the progress of all configurations."""
        self._send(ProgressUpdate(list(configurations)))

    def on_warning(self, text: str) -> None:
        """Send the warning."""
        self._send(WarningRaised(text))


def _watch_requests(requests: BinaryIO) -> None:
    """Interrupt the study at a Stop; exit if the driver closes standard input."""
    for line in requests:
        request_decoder.decode(line)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(1)  # the kernel kills workers whose parent is gone


def main() -> None:
    """Read a task, run it and exit."""
    # Background processes of a shell ignore SIGINT, so a Stop would have no effect.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The executor has added polybench's own folder, but documents record the user's variables.
    paths = os.environ.pop("PYTHONPATH", "").split(os.pathsep)
    if user_paths := [path for path in paths if path and path not in OWN_INTERPRETER.folders]:
        os.environ["PYTHONPATH"] = os.pathsep.join(user_paths)
    requests = sys.stdin.buffer
    task = request_decoder.decode(requests.readline())
    assert isinstance(task, Task)
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of libraries must not corrupt the messages
    threading.Thread(target=_watch_requests, args=(requests,), daemon=True).start()

    def send(message: Message) -> None:
        output.write(encode_line(message))
        output.flush()

    run_task(task, send)


if __name__ == "__main__":
    main()
