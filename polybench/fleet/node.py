"""The node program, `python -m polybench.fleet.node`: measures the study of one machine group, as here.

A Task comes on standard input; what is to be said goes to standard output. The study runs as any other does
(measuring.study), with a folder of its own for what is saved; each document that is saved is also sent, with
what is needed to go on. Nobody at the other end of standard input means that the driver is gone: it ends.
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

from polybench.core import interrupts
from polybench.core.document.study import StudyDocument, json_of
from polybench.core.errors import BadInput, PolybenchError
from polybench.fleet.messages import (
    CellLine,
    Cells,
    Examined,
    Finished,
    Hello,
    Message,
    Refused,
    Remaining,
    Saved,
    Stage,
    Task,
    Warned,
    line_of,
    request_decoder,
)
from polybench.fleet.program import differences, this_program, versions_of
from polybench.measuring.checkpoint import Unfinished
from polybench.measuring.doctor import examined
from polybench.measuring.progress import CellSoFar
from polybench.measuring.resume import resume_study
from polybench.measuring.scratch import scratch_folder
from polybench.measuring.study import new_context, run_study
from polybench.report.saved_studies import Document, Store

Send = Callable[[Message], None]

_LOG_BYTES = 1 << 20
"""Of a failed worker's log, its end."""


def run(task: Task, send: Send) -> None:
    """Do a task in this process, and tell how it goes until Finished or Refused."""
    try:
        if wrong := differences(task.program, this_program()):
            raise BadInput("; ".join(wrong))
        send(Hello(hostname=socket.gethostname(), versions=versions_of(task.study)))
        if task.examine:
            send(Stage("looking for engines"))
            send(Examined(examined()))
        else:
            with scratch_folder() as folder:
                _measure(task, send, folder)
        send(Finished())
    except PolybenchError as error:
        send(Refused(str(error), error.exit_code))
    except KeyboardInterrupt:
        send(Refused("interrupted; nothing was measured yet", 130))


def _measure(task: Task, send: Send, folder: Path) -> None:
    """One study, begun or resumed, in a folder of saved studies that holds no other."""
    store = _SendingStore(folder, task, send)
    progress = _Told(send)
    with interrupts.deferred():
        if task.state is not None:
            _put_state(folder, task.id, task.state)
            resume_study(task.id, progress, store=store, strict=task.strict, anonymous=task.anonymous)
            return
        context = new_context(task.argv, task.background, anonymous=task.anonymous)
        run_study(
            task.study,
            progress,
            store=store,
            context=msgspec.structs.replace(context, id=task.id, created=task.created),
            strict=task.strict,
            check=task.check,
        )


def _state_file(folder: Path, id: str) -> Path:
    return Unfinished(folder).file(id)


def _put_state(folder: Path, id: str, state: bytes) -> None:
    path = _state_file(folder, id)
    path.parent.mkdir(parents=True)
    path.write_bytes(state)


class _SendingStore(Store):
    """A folder of one study, which sends what is saved in it."""

    def __init__(self, folder: Path, task: Task, send: Send) -> None:
        super().__init__(folder)
        self._task, self._send = task, send

    def save(self, document: Document) -> Path:
        """Save it here, and send it with what is needed to go on, also where this disk is full."""
        assert isinstance(document, StudyDocument)  # nothing else is measured here
        try:
            return super().save(document)
        finally:
            self._send(Saved(json_of(document), self._state(document), self._logs(document)))

    def _state(self, document: StudyDocument) -> bytes | None:
        if _complete(document):
            return None
        try:
            return _state_file(self.folder, document.id).read_bytes()
        except OSError:  # a full disk: the study goes on, and nobody can resume it
            return None

    def _logs(self, document: StudyDocument) -> dict[str, bytes]:
        """Of workers that failed, once the study has ended: their folder goes with it."""
        if not document.finished:
            return {}
        folder = self.folder / "logs" / document.id  # which an anonymous document does not tell
        paths = [folder / Path(result.log).name for result in document.results if result.log is not None]
        return {path.name: path.read_bytes()[-_LOG_BYTES:] for path in paths if path.is_file()}


def _complete(document: StudyDocument) -> bool:
    return bool(document.finished) and all(one.status != "interrupted" for one in document.results)


class _Told:
    """A measuring.progress.Progress at the other end."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def stage(self, text: str) -> None:
        self._send(Stage(text))

    def remaining(self, seconds: float) -> None:
        self._send(Remaining(seconds))

    def cells(self, cells: Sequence[CellSoFar]) -> None:
        self._send(Cells([CellLine(*cell) for cell in cells]))

    def warn(self, text: str) -> None:
        self._send(Warned(text))


def _obey(requests: BinaryIO) -> None:
    """Wait for Stop; nobody to say it means that the driver is gone, and with it whoever wants to know."""
    for line in requests:
        request_decoder.decode(line)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(1)  # the kernel ends the workers of a parent that is gone


def main() -> None:
    """Read a task, do it, and end."""
    # What was started in the background of a shell ignores it, and a Stop would do nothing.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    requests = sys.stdin.buffer
    task = request_decoder.decode(requests.readline())
    assert isinstance(task, Task)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints cannot corrupt them
    threading.Thread(target=_obey, args=(requests,), daemon=True).start()

    def send(message: Message) -> None:
        answers.write(line_of(message))
        answers.flush()

    run(task, send)


if __name__ == "__main__":
    main()
