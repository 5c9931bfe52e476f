"""The node program, `python -m polybench.cluster.node`: measures the study of one machine group.

It reads a Task from standard input and writes messages to standard output. The study runs as on any machine
(`run.run`), in a results folder of its own, and the driver gets each line of its log, from which it can be resumed.
If standard input is closed, the driver is gone, and the node program ends.
"""

from __future__ import annotations

import contextlib
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
    Lines,
    Message,
    ProgressUpdate,
    Rejected,
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
from polybench.log import Header
from polybench.log import encode_line as encode_event
from polybench.machine import host, interrupts
from polybench.protocol.interpreter import OWN_INTERPRETER
from polybench.results.document import study_toml
from polybench.run import run
from polybench.runner.doctor import diagnose
from polybench.runner.prepare import new_log
from polybench.runner.progress import ConfigurationProgress, NullProgress
from polybench.runner.resume import unfinished_log
from polybench.runner.scratch import scratch_folder
from polybench.schema.study import StudyDocument
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
            send(Finished())
        else:
            with scratch_folder() as folder:
                send(Finished(_measure(task, send, folder)))
    except PolybenchError as error:
        send(Rejected(str(error), error.exit_code))
    except KeyboardInterrupt:
        send(Rejected("interrupted before anything was measured", 130))


def _measure(task: Task, send: Send, folder: Path) -> dict[str, bytes]:
    """Run or resume one study in a results folder of its own; return the logs of failed workers."""
    store, header = Store(folder), task.header
    with interrupts.defer_signals(), contextlib.ExitStack() as stack:
        if task.log:
            _write_log(task, store)
            log, _ = stack.enter_context(unfinished_log(header.id, store, anonymous=header.anonymous))
        else:
            header = msgspec.structs.replace(header, host=host.this_host(), polybench=host.tool_version())
            log = stack.enter_context(new_log(task.study, header, store))
        log.send_to(lambda number, event: send(Lines(number, [event])), after=len(task.log))
        progress = StreamingProgress(send)
        document = run(task.study, log, progress, store=store, strict=task.strict, parity_check=task.parity_check)
    return _read_logs(document, folder / "logs" / header.id)


def _write_log(task: Task, store: Store) -> None:
    """Write the log of an earlier node; its study may have the paths of another machine, or lack them."""
    header, *events = task.log
    assert isinstance(header, Header)
    header = msgspec.structs.replace(header, study=study_toml(task.study))
    store.log_path(task.header.id).write_bytes(b"".join(map(encode_event, [header, *events])))


def _read_logs(document: StudyDocument, folder: Path) -> dict[str, bytes]:
    """Return the logs of failed workers, whose folder is deleted with this study; an anonymous report lacks it."""
    paths = [folder / Path(result.log_path).name for result in document.results if result.log_path is not None]
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
